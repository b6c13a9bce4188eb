-- Checkpoints whose optimizer was dropped: a revised manifest without optimizer state. `ckpt status` counts them.
CREATE INDEX checkpoints_demoted ON checkpoints (run, series, step, generation, name, id)
  WHERE revision>0 AND optim_bytes=0 AND files>0 AND is_foreign=0;
