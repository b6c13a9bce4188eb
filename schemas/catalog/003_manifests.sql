-- What a checkpoint's manifest was when it was read, by which damage is seen that its directory does not show. Of what
-- was read before there were such columns nothing is known, so that it is read again.
ALTER TABLE checkpoints ADD COLUMN manifest_inode INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN manifest_mtime_ns INTEGER NOT NULL DEFAULT 0;
