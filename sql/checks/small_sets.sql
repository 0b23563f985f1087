-- Sets with a share of the counts below $share.
-- Needs: sets (of the run)
SELECT fit, latent, n_sources, probability
FROM sets
WHERE latent IS NOT NULL AND probability < $share
ORDER BY probability
