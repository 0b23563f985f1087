-- Fits that did not converge, or that lack a certificate.
-- Needs: fits (of the run)
SELECT fit, rank, iterations, converged, certified
FROM fits
WHERE NOT (converged AND certified)
