//! Functions of a state: numbers, coordinates and operators, with exact derivatives.
//!
//! An expression is a list of operations in postfix order. [`Expression::eval`] runs it on numbers,
//! [`Expression::gradient`] on numbers with derivatives (forward mode). Neither allocates for
//! expressions that need at most [`STACK`] values at once.

use serde::{Deserialize, Serialize};

/// Values that an evaluation holds without an allocation.
const STACK: usize = 32;

/// Derivatives per run of the program in [`Expression::gradient`].
const SLOPES: usize = 4;

/// Writes functions of numbers as an enum, with their values.
macro_rules! functions {
    ($(#[$about:meta])* $Function:ident($($x:ident),*) {
        $($(#[$own:meta])* $name:ident => $value:expr,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $Function {
            $($(#[$own])* $name,)*
        }

        impl $Function {
            #[cfg(test)]
            const ALL: &[$Function] = &[$($Function::$name,)*];

            #[inline]
            fn value(self, $($x: f64),*) -> f64 {
                match self {
                    $($Function::$name => $value,)*
                }
            }
        }
    };
}

functions! {
    /// A function of one number.
    Unary(x) {
        /// −x.
        Negate => -x,
        /// 1 where x is 0, else 0.
        Not => f64::from(x == 0.0),
        /// The absolute value.
        Abs => x.abs(),
        /// −1, 0 or 1.
        Signum => sign(x),
        /// The square root.
        Sqrt => x.sqrt(),
        /// The cube root.
        Cbrt => x.cbrt(),
        /// eˣ.
        Exp => x.exp(),
        /// The natural logarithm.
        Ln => x.ln(),
        /// The logarithm to base 2.
        Log2 => x.log2(),
        /// The logarithm to base 10.
        Log10 => x.log10(),
        /// The sine of radians.
        Sin => x.sin(),
        /// The cosine of radians.
        Cos => x.cos(),
        /// The tangent of radians.
        Tan => x.tan(),
        /// The arc sine.
        Asin => x.asin(),
        /// The arc cosine.
        Acos => x.acos(),
        /// The arc tangent.
        Atan => x.atan(),
        /// The hyperbolic sine.
        Sinh => x.sinh(),
        /// The hyperbolic cosine.
        Cosh => x.cosh(),
        /// The hyperbolic tangent.
        Tanh => x.tanh(),
        /// The inverse hyperbolic sine.
        Asinh => x.asinh(),
        /// The inverse hyperbolic cosine.
        Acosh => x.acosh(),
        /// The inverse hyperbolic tangent.
        Atanh => x.atanh(),
        /// Radians → degrees.
        Degrees => x.to_degrees(),
        /// Degrees → radians.
        Radians => x.to_radians(),
        /// The next lower integer.
        Floor => x.floor(),
        /// The next higher integer.
        Ceil => x.ceil(),
        /// The nearest integer, halves away from 0.
        Round => x.round(),
        /// The integer part.
        Trunc => x.trunc(),
    }
}

functions! {
    /// A function of two numbers.
    Binary(a, b) {
        /// a + b.
        Add => a + b,
        /// a − b.
        Subtract => a - b,
        /// a · b.
        Multiply => a * b,
        /// a / b.
        Divide => a / b,
        /// The remainder of a / b, with the sign of a.
        Remainder => a % b,
        /// aᵇ.
        Power => a.powf(b),
        /// The angle of the point (b, a).
        Atan2 => a.atan2(b),
        /// The larger number.
        Greatest => if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) },
        /// The smaller number.
        Least => if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) },
        /// 1 if a = b, else 0.
        Equal => f64::from(a == b),
        /// 1 if a ≠ b, else 0.
        NotEqual => f64::from(a != b),
        /// 1 if a < b, else 0.
        Less => f64::from(a < b),
        /// 1 if a ≤ b, else 0.
        AtMost => f64::from(a <= b),
        /// 1 if neither is 0, else 0.
        And => f64::from(a != 0.0 && b != 0.0),
        /// 1 if one is not 0, else 0.
        Or => f64::from(a != 0.0 || b != 0.0),
    }
}

/// One operation on a stack of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Operation {
    /// Pushes a number.
    Number(f64),
    /// Pushes a coordinate.
    Coordinate(u32),
    /// Replaces the top.
    Unary(Unary),
    /// Replaces the upper two by one.
    Binary(Binary),
    /// Replaces (condition, a, b) by a if the condition is not 0, else by b.
    Choose,
}

/// A function of a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expression {
    program: Vec<Operation>,
    /// Most values at once.
    depth: usize,
}

impl Expression {
    /// A constant. Conditions are 1 if they hold, else 0.
    pub(crate) fn number(value: f64) -> Expression {
        Expression {
            program: vec![Operation::Number(value)],
            depth: 1,
        }
    }

    /// The coordinate of the state with this index.
    pub(crate) fn coordinate(index: usize) -> Expression {
        Expression {
            program: vec![Operation::Coordinate(index as u32)],
            depth: 1,
        }
    }

    /// A function of one expression.
    pub(crate) fn unary(function: Unary, mut of: Expression) -> Expression {
        of.program.push(Operation::Unary(function));
        of
    }

    /// A function of two expressions.
    pub(crate) fn binary(function: Binary, mut a: Expression, b: Expression) -> Expression {
        a.append(b, 1);
        a.program.push(Operation::Binary(function));
        a
    }

    /// `a` where the condition is not 0, else `b`. Both are evaluated.
    pub(crate) fn choose(mut condition: Expression, a: Expression, b: Expression) -> Expression {
        condition.append(a, 1);
        condition.append(b, 2);
        condition.program.push(Operation::Choose);
        condition
    }

    fn append(&mut self, next: Expression, below: usize) {
        self.depth = self.depth.max(below + next.depth);
        self.program.extend(next.program);
    }

    /// The value at a state. NaN where the function is not defined.
    pub(crate) fn eval(&self, state: &[f64]) -> f64 {
        self.run(0.0, |index| state[index])
    }

    /// The value at a state. `gradient` becomes its derivatives by all coordinates, one value per
    /// coordinate. Steps, rounding and comparisons have derivative 0.
    pub(crate) fn gradient(&self, state: &[f64], gradient: &mut [f64]) -> f64 {
        let mut value = f64::NAN;
        if gradient.is_empty() {
            return self.eval(state);
        }
        for (chunk, gradient) in gradient.chunks_mut(SLOPES).enumerate() {
            let first = chunk * SLOPES;
            let all = self.run(Dual::of(0.0), |index| {
                let mut coordinate = Dual::of(state[index]);
                if let Some(slope) = index
                    .checked_sub(first)
                    .and_then(|at| coordinate.slopes.get_mut(at))
                {
                    *slope = 1.0;
                }
                coordinate
            });
            value = all.value;
            gradient.copy_from_slice(&all.slopes[..gradient.len()]);
        }
        value
    }

    fn run<N: Number>(&self, zero: N, coordinate: impl Fn(usize) -> N) -> N {
        if self.depth <= STACK {
            self.run_on(&mut [zero; STACK], coordinate)
        } else {
            self.run_on(&mut vec![zero; self.depth], coordinate)
        }
    }

    fn run_on<N: Number>(&self, stack: &mut [N], coordinate: impl Fn(usize) -> N) -> N {
        // The number of values on the stack.
        let mut top = 0;
        for operation in &self.program {
            match *operation {
                Operation::Number(value) => {
                    stack[top] = N::of(value);
                    top += 1;
                }
                Operation::Coordinate(index) => {
                    stack[top] = coordinate(index as usize);
                    top += 1;
                }
                Operation::Unary(function) => {
                    stack[top - 1] = stack[top - 1].unary(function);
                }
                Operation::Binary(function) => {
                    stack[top - 2] = stack[top - 2].binary(function, stack[top - 1]);
                    top -= 1;
                }
                Operation::Choose => {
                    let holds = stack[top - 3].value() != 0.0;
                    stack[top - 3] = stack[if holds { top - 2 } else { top - 1 }];
                    top -= 2;
                }
            }
        }
        stack[0]
    }
}

/// What a program calculates with.
trait Number: Copy {
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
    fn unary(self, function: Unary) -> Self;
    fn binary(self, function: Binary, other: Self) -> Self;
}

impl Number for f64 {
    fn of(value: f64) -> f64 {
        value
    }

    fn value(self) -> f64 {
        self
    }

    fn unary(self, function: Unary) -> f64 {
        function.value(self)
    }

    fn binary(self, function: Binary, other: f64) -> f64 {
        function.value(self, other)
    }
}

/// −1, 0 or 1; NaN for NaN.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

/// A number and its derivatives by up to four coordinates.
#[derive(Clone, Copy)]
struct Dual {
    value: f64,
    slopes: [f64; SLOPES],
}

/// partial · slope, and 0 if the argument does not depend on the coordinate, even where the partial
/// derivative is infinite or not defined.
fn chain(partial: f64, slope: f64) -> f64 {
    if slope == 0.0 { 0.0 } else { partial * slope }
}

impl Number for Dual {
    fn of(value: f64) -> Dual {
        let slopes = [0.0; SLOPES];
        Dual { value, slopes }
    }

    fn value(self) -> f64 {
        self.value
    }

    fn unary(self, function: Unary) -> Dual {
        let x = self.value;
        let y = x.unary(function);
        let slope = match function {
            Unary::Negate => -1.0,
            Unary::Abs => sign(x),
            Unary::Sqrt => 0.5 / y,
            Unary::Cbrt => 1.0 / (3.0 * y * y),
            Unary::Exp => y,
            Unary::Ln => 1.0 / x,
            Unary::Log2 => 1.0 / (x * std::f64::consts::LN_2),
            Unary::Log10 => 1.0 / (x * std::f64::consts::LN_10),
            Unary::Sin => x.cos(),
            Unary::Cos => -x.sin(),
            Unary::Tan => 1.0 + y * y,
            Unary::Asin => 1.0 / (1.0 - x * x).sqrt(),
            Unary::Acos => -1.0 / (1.0 - x * x).sqrt(),
            Unary::Atan => 1.0 / (1.0 + x * x),
            Unary::Sinh => x.cosh(),
            Unary::Cosh => x.sinh(),
            Unary::Tanh => 1.0 - y * y,
            Unary::Asinh => 1.0 / (x * x + 1.0).sqrt(),
            Unary::Acosh => 1.0 / (x * x - 1.0).sqrt(),
            Unary::Atanh => 1.0 / (1.0 - x * x),
            Unary::Degrees => 1f64.to_degrees(),
            Unary::Radians => 1f64.to_radians(),
            Unary::Not
            | Unary::Signum
            | Unary::Floor
            | Unary::Ceil
            | Unary::Round
            | Unary::Trunc => 0.0,
        };
        let slopes = self.slopes.map(|d| chain(slope, d));
        Dual { value: y, slopes }
    }

    fn binary(self, function: Binary, other: Dual) -> Dual {
        let (a, b) = (self.value, other.value);
        let value = a.binary(function, b);
        let (of_a, of_b) = match function {
            Binary::Add => (1.0, 1.0),
            Binary::Subtract => (1.0, -1.0),
            Binary::Multiply => (b, a),
            Binary::Divide => (1.0 / b, -value / b),
            Binary::Remainder => (1.0, -(a / b).trunc()),
            Binary::Power => (b * a.powf(b - 1.0), value * a.ln()),
            Binary::Atan2 => {
                let square = a * a + b * b;
                (b / square, -a / square)
            }
            Binary::Greatest => (f64::from(a >= b), f64::from(a < b)),
            Binary::Least => (f64::from(a <= b), f64::from(a > b)),
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::AtMost
            | Binary::And
            | Binary::Or => (0.0, 0.0),
        };
        let mut slopes = [0.0; SLOPES];
        for ((slope, da), db) in slopes.iter_mut().zip(self.slopes).zip(other.slopes) {
            *slope = chain(of_a, da) + chain(of_b, db);
        }
        Dual { value, slopes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x(index: usize) -> Expression {
        Expression::coordinate(index)
    }

    fn number(value: f64) -> Expression {
        Expression::number(value)
    }

    fn unary(function: Unary, of: Expression) -> Expression {
        Expression::unary(function, of)
    }

    fn binary(function: Binary, a: Expression, b: Expression) -> Expression {
        Expression::binary(function, a, b)
    }

    /// Compares derivatives with central differences at a state.
    fn assert_gradient(what: &str, expression: &Expression, state: &[f64]) {
        let mut gradient = vec![f64::NAN; state.len()];
        let value = expression.gradient(state, &mut gradient);
        assert_eq!(value.to_bits(), expression.eval(state).to_bits(), "{what}");
        for i in 0..state.len() {
            let h = 1e-6;
            let mut moved = state.to_vec();
            moved[i] += h;
            let above = expression.eval(&moved);
            moved[i] -= 2.0 * h;
            let difference = (above - expression.eval(&moved)) / (2.0 * h);
            let error = (difference - gradient[i]).abs();
            assert!(error < 1e-6, "{what}: {difference} {}", gradient[i]);
        }
    }

    #[test]
    fn derivatives_are_those_of_central_differences() {
        for &function in Unary::ALL {
            let at = if function == Unary::Acosh { 1.7 } else { 0.37 };
            assert_gradient(&format!("{function:?}"), &unary(function, x(0)), &[at]);
        }
        for &function in Binary::ALL {
            let expression = binary(function, x(0), x(1));
            assert_gradient(&format!("{function:?}"), &expression, &[2.3, 0.7]);
            assert_gradient(&format!("{function:?}"), &expression, &[0.6, 1.9]);
        }
    }

    #[test]
    fn a_product_of_many_coordinates_has_all_derivatives() {
        let product = (1..7).fold(x(0), |all, i| binary(Binary::Multiply, all, x(i)));
        let state = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let mut gradient = [0.0; 7];
        assert_eq!(product.gradient(&state, &mut gradient), 5040.0);
        for (i, slope) in gradient.iter().enumerate() {
            assert_eq!(*slope, 5040.0 / state[i]);
        }
    }

    #[test]
    fn a_deep_expression_is_evaluated() {
        let deep = (0..100).fold(x(0), |all, _| binary(Binary::Add, x(0), all));
        assert_eq!(deep.eval(&[0.5]), 50.5);
        let mut slope = [0.0];
        deep.gradient(&[0.5], &mut slope);
        assert_eq!(slope, [101.0]);
    }

    #[test]
    fn the_branch_that_is_chosen_gives_value_and_derivative() {
        let root = unary(Unary::Sqrt, x(0));
        let negative = binary(Binary::Less, x(0), number(0.0));
        let expression = Expression::choose(negative, unary(Unary::Negate, x(0)), root);
        assert_eq!(expression.eval(&[4.0]), 2.0);
        assert_eq!(expression.eval(&[-4.0]), 4.0);
        assert_gradient("root", &expression, &[4.0]);
        assert_gradient("negative", &expression, &[-4.0]);
    }

    #[test]
    fn a_constant_argument_adds_no_derivative() {
        // The derivative of aᵇ by b is not defined for a < 0.
        let square = binary(Binary::Power, x(0), number(2.0));
        let mut slope = [0.0];
        assert_eq!(square.gradient(&[-3.0], &mut slope), 9.0);
        assert_eq!(slope, [-6.0]);
        let root = unary(Unary::Sqrt, binary(Binary::Multiply, number(0.0), x(0)));
        assert_eq!(root.gradient(&[1.0], &mut slope), 0.0);
        assert_eq!(slope, [0.0]);
    }

    #[test]
    fn numbers_of_sql() {
        assert_eq!(unary(Unary::Signum, number(0.0)).eval(&[]), 0.0);
        assert_eq!(unary(Unary::Round, number(-2.5)).eval(&[]), -3.0);
        let remainder = binary(Binary::Remainder, number(-7.0), number(3.0));
        assert_eq!(remainder.eval(&[]), -1.0);
        let both = binary(Binary::And, number(1.0), number(0.0));
        assert_eq!(both.eval(&[]), 0.0);
        let greatest = binary(Binary::Greatest, number(f64::NAN), number(1.0));
        assert!(greatest.eval(&[]).is_nan());
    }

    #[test]
    fn an_expression_survives_its_bytes() {
        let expression = Expression::choose(
            binary(Binary::AtMost, x(1), number(0.1)),
            unary(Unary::Cosh, x(0)),
            binary(Binary::Atan2, x(0), x(1)),
        );
        let bytes = postcard::to_stdvec(&expression).unwrap();
        let back: Expression = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(back, expression);
    }
}
