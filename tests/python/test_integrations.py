"""Trainers that save through ckpt.integrations and resume give the losses of a training that was never interrupted."""
import os

import ckpt
import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore")


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.randint(0, 64, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def test_a_trainer_resumes_with_the_same_losses(tmp_path):
    import transformers
    from ckpt.integrations.transformers import SaveCallback

    def train(out, last, path=None):
        torch.manual_seed(0)
        saves = SaveCallback(path or tmp_path / "whole", every=2, staging=1 << 26, keep=2)
        arguments = transformers.TrainingArguments(
            output_dir=str(out), max_steps=6, save_strategy="no", logging_steps=1, per_device_train_batch_size=4, report_to=[], use_cpu=True,
            optim="adamw_torch", disable_tqdm=True, seed=7, learning_rate=1e-3, lr_scheduler_type="cosine")
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))

        class Stop(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                control.should_training_stop = state.global_step >= last

        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Data(), callbacks=[saves, Stop()])
        trainer.train(resume_from_checkpoint=saves.folder(out))
        return {line["step"]: line["loss"] for line in trainer.state.log_history if "loss" in line}

    expected = train(tmp_path / "out", 6)
    first = train(tmp_path / "part", 5, tmp_path / "run")
    rest = train(tmp_path / "part", 6, tmp_path / "run")
    assert [first[step] for step in range(1, 6)] == [expected[step] for step in range(1, 6)]
    assert rest[5] == expected[5] and rest[6] == expected[6]  # the last checkpoint was of step 4
    info = ckpt.open(tmp_path / "run").info
    assert info.step == 6 and info.metrics["loss"] == expected[5]
    assert ckpt.verify(tmp_path / "run").ok and os.listdir(tmp_path / "part") == ["checkpoint-4"]
    assert sorted(ckpt.open(path).info.step for path in (tmp_path / "run").glob("step-*")) == [4, 6]  # keep=2


def test_accelerate_resumes_with_the_same_losses(tmp_path):
    import accelerate
    from ckpt.integrations.accelerate import Checkpoints

    class Counter:
        count = 0

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    def train(path, last):
        torch.manual_seed(0)
        accelerator, counter = accelerate.Accelerator(cpu=True), Counter()
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        accelerator.register_for_checkpointing(counter)
        losses = {}
        with ckpt.Run(path, every=2, staging=1 << 26) as run:
            checkpoints = Checkpoints(accelerator, run)
            for step in range(checkpoints.load() + 1, last + 1):
                counter.count += 1
                loss = model(torch.ones(3, 4)).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                losses[step] = loss.item()
                checkpoints.save_if_due(step, metrics={"loss": loss.item()})
        assert counter.count == last
        return losses

    expected = train(tmp_path / "whole", 6)
    train(tmp_path / "run", 5)
    assert train(tmp_path / "run", 6) == {5: expected[5], 6: expected[6]}
    # One model and one optimizer have the names that conversions look for; lists of them, as they were saved before, load too.
    ckpt.convert(tmp_path / "run", tmp_path / "model.safetensors", only="weights")
    assert set(ckpt.open(tmp_path / "model.safetensors")) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    with ckpt.Run(tmp_path / "run") as run:
        state = run.load(4).tree
    for kind in ("model", "optimizer", "scheduler"):
        state[f"{kind}s"] = [state.pop(kind)]
    with ckpt.Run(tmp_path / "lists") as run:
        run.save(4, state)
    assert train(tmp_path / "lists", 6) == {5: expected[5], 6: expected[6]}


def test_lightning_resumes_with_the_same_losses(tmp_path):
    pytorch_lightning = pytest.importorskip("pytorch_lightning")
    from ckpt.integrations.lightning import RunCheckpointIO
    from pytorch_lightning.callbacks import ModelCheckpoint

    class Model(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters({"width": 4})
            self.layer = torch.nn.Linear(4, 1)
            self.losses = {}

        def training_step(self, batch, index):
            loss = self.layer(batch).square().mean()
            self.losses[self.global_step] = loss.item()
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]

    def train(out, last, resume=None, plugins=[RunCheckpointIO()]):
        torch.manual_seed(0)
        model = Model()
        saves = ModelCheckpoint(dirpath=out, every_n_train_steps=2, save_top_k=2, monitor="step", mode="max", filename="{step}")
        trainer = pytorch_lightning.Trainer(max_steps=last, plugins=plugins, callbacks=[saves], logger=False, accelerator="cpu",
                                            enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(model, torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2), ckpt_path=resume)
        return model.losses

    expected = train(tmp_path / "whole", 6)
    train(tmp_path / "part", 4)
    assert train(tmp_path / "part", 6, str(tmp_path / "part" / "step=4.ckpt")) == {4: expected[4], 5: expected[5]}
    assert sorted(os.listdir(tmp_path / "part")) == ["step=4.ckpt", "step=6.ckpt"]  # step=2.ckpt was removed
    saved = ckpt.open(tmp_path / "part" / "step=6.ckpt").torch("state_dict.")
    # As a file, for what does not ask a CheckpointIO.
    ckpt.convert(tmp_path / "part" / "step=6.ckpt", tmp_path / "six.ckpt", to="torch")
    assert torch.equal(Model.load_from_checkpoint(tmp_path / "six.ckpt").layer.weight, saved["layer.weight"])
    ckpt.convert(tmp_path / "part" / "step=4.ckpt", tmp_path / "four.ckpt", to="torch")
    assert train(tmp_path / "stock", 6, str(tmp_path / "four.ckpt"), plugins=[]) == {4: expected[4], 5: expected[5]}
