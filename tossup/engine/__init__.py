"""The only part that imports torch: generation, the GRPO update, the loop, checkpoints, and curate's sampling."""
