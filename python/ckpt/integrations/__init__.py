"""Adapters for trainers, each of which imports its framework: accelerate, deepspeed, jax, keras, lightning, transformers."""
