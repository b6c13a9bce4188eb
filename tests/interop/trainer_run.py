"""A small run of Hugging Face's Trainer on the CPU: six steps, saved at the third; prints the losses as JSON.

    python trainer_run.py OUT [DEEPSPEED_STAGE]     trains, with DeepSpeed where a stage is given
    python trainer_run.py OUT [DEEPSPEED_STAGE] --code FILE    runs the lines of FILE with `trainer`
"""
import json
import os
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")


def main(out, *words):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            tokens = torch.randint(0, 64, (12,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": tokens, "labels": tokens}

    code = words[-1] if "--code" in words else None
    stage = int(words[0]) if words and words[0] != "--code" else None
    config = None
    if stage is not None:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(20000 + os.getpid() % 20000))
        import deepspeed.ops
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        config = {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto",
                  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "zero_allow_untested_optimizer": True,
                  "zero_force_ds_cpu_optimizer": False}
    torch.manual_seed(0)
    arguments = TrainingArguments(output_dir=out, max_steps=6, save_steps=3, logging_steps=1, per_device_train_batch_size=4, report_to=[],
                                  use_cpu=True, optim="adamw_torch", disable_tqdm=True, seed=7, learning_rate=1e-3,
                                  lr_scheduler_type="cosine", deepspeed=config)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    trainer = Trainer(model=model, args=arguments, train_dataset=Data())
    if code is not None:
        with open(code) as file:
            exec(file.read(), {"trainer": trainer})
    else:
        trainer.train()
    print(json.dumps([line["loss"] for line in trainer.state.log_history if "loss" in line]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
