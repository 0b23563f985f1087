-- Words of speeches; the rarer ones are null, so that they are no state but still stand between their neighbours.
-- Needs: words (speech, position, word)
SELECT speech, position, CASE WHEN count(*) OVER (PARTITION BY word) >= $occurrences THEN word END AS word
FROM words
