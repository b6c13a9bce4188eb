"""Adapters for trainers: ckpt.integrations.transformers, .accelerate, .lightning, .jax. Each imports its framework."""
