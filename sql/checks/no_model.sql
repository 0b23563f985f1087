-- Airlines with at least $routes routes but without a model.
-- Needs: routes (airline), sources (of the run)
SELECT routes.airline, count(*) AS n
FROM routes LEFT ANTI JOIN sources ON sources.airline = routes.airline
GROUP BY routes.airline
HAVING count(*) >= $routes
ORDER BY n DESC
