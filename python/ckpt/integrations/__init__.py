"""Adapters for trainers: ckpt.integrations.transformers, .accelerate, .lightning. Each imports its framework."""
