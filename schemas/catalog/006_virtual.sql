-- Files of other checkpoints that a virtual checkpoint refers to. Its layout says that it is one.
ALTER TABLE checkpoints ADD COLUMN referenced_files INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN referenced_bytes INTEGER NOT NULL DEFAULT 0;
