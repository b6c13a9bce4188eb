-- The series that a series continues, where a job went back to a checkpoint that a rollback had superseded.
ALTER TABLE checkpoints ADD COLUMN series_after INTEGER;
