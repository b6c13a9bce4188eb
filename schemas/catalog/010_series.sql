-- What the records of the trash say about the series of their checkpoints, also of those purged since: of a series that
-- superseded others nothing else may be left.
CREATE TABLE trash_series (
  run TEXT NOT NULL,
  kept_as TEXT NOT NULL,
  series INTEGER NOT NULL,
  series_from INTEGER,
  series_after INTEGER,
  inode INTEGER NOT NULL,        -- what its record was when it was read; 0: read it again
  mtime_ns INTEGER NOT NULL,
  PRIMARY KEY (run, kept_as)
) STRICT, WITHOUT ROWID;
DELETE FROM trash_runs;          -- list all again
DELETE FROM trash;

-- How series of a run began: a run that never went back has none.
CREATE INDEX checkpoints_begun ON checkpoints (run, series, series_from, series_after) WHERE series_from IS NOT NULL;
