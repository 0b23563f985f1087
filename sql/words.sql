-- Words of speeches. Rare words are null: they are no state, but they still separate their neighbours.
-- Needs: words (speech, position, word)
SELECT speech, position, CASE WHEN count(*) OVER (PARTITION BY word) >= $occurrences THEN word END AS word
FROM words
