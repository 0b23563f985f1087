-- Routes of airlines that fly from at least $airports airports.
-- Needs: routes (airline, source, target)
SELECT airline, source, target
FROM routes
WHERE airline IN (SELECT airline FROM routes GROUP BY airline HAVING count(DISTINCT source) >= $airports)
