-- Fits that stopped before they converged, or whose certificates could not all be stated.
-- Needs: fits (of the run)
SELECT fit, rank, iterations, converged, certified
FROM fits
WHERE NOT (converged AND certified)
