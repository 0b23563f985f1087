//! What receives the pairs and windows of trajectories.

/// Receives pairs or windows.
pub(crate) trait Emit<P> {
    /// Receives a pair of points at a lag. Points may have no state.
    fn pair(&mut self, lag: usize, source: P, target: P);

    /// Receives a pair whose target is near the time that the lag asks for, and not at it.
    fn near_pair(&mut self, lag: usize, source: P, target: P) {
        self.pair(lag, source, target);
    }

    /// Receives the points of a window. Points may have no state.
    fn window(&mut self, rows: &[P]);

    /// Notes a gap that ends a trajectory.
    fn gap(&mut self) {}
}

/// A closure receives pairs.
impl<P, F: FnMut(usize, P, P)> Emit<P> for F {
    #[inline(always)]
    fn pair(&mut self, lag: usize, source: P, target: P) {
        self(lag, source, target);
    }

    fn window(&mut self, _: &[P]) {}
}

/// A receiver that is borrowed.
pub(crate) struct ByReference<'a, E>(pub &'a mut E);

impl<P, E: Emit<P>> Emit<P> for ByReference<'_, E> {
    #[inline(always)]
    fn pair(&mut self, lag: usize, source: P, target: P) {
        self.0.pair(lag, source, target);
    }

    #[inline(always)]
    fn near_pair(&mut self, lag: usize, source: P, target: P) {
        self.0.near_pair(lag, source, target);
    }

    #[inline(always)]
    fn window(&mut self, rows: &[P]) {
        self.0.window(rows);
    }

    fn gap(&mut self) {
        self.0.gap();
    }
}
