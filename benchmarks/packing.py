"""CPU seconds of one update with padded and with packed rows, by the tokens of a micro-batch.

    python -m benchmarks.packing [--updates 10]

The built-in recipe's batch: 16 problems x 8 answers sampled from its start model, the informative groups of them; one
thread, float32, a learning rate of nearly zero so that every update is the same.
"""

from __future__ import annotations

import argparse
import time

PROBLEMS, GROUP, LIMIT = 16, 8, 16


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=10)
    args = parser.parse_args()

    import torch

    from tossup.curriculum.gate import informative
    from tossup.engine.arithmetic import pool
    from tossup.engine.config import RolloutConfig, TrainConfig
    from tossup.engine.policy import load
    from tossup.engine.rollouts import sample_groups
    from tossup.engine.step import make_optimizer, update

    torch.set_num_threads(1)
    policy = load("builtin:arithmetic", "cpu")
    rollout = RolloutConfig(max_new_tokens=LIMIT)
    groups, _ = sample_groups(policy, pool()[:PROBLEMS], rollout, group_size=GROUP, seed=0)
    kept = informative(groups)
    rows = [r for g in kept for r in g.decided]
    print(f"{len(rows)} rows, {sum(len(r.prompt_ids) + len(r.response_ids) for r in rows)} tokens without padding\n")
    print("| rows | tokens a micro-batch | CPU s an update |\n|---|---|---|")
    for packing in ("padded", "packed"):
        for budget in (128, 256, 512, 1024, 2048):
            settings = {"packing": packing, "micro_batch_tokens": budget, "lr": 1e-9}
            config = TrainConfig.model_validate({"rollout": rollout.model_dump(), "update": settings})
            optimizer = make_optimizer(policy, config.update)
            update(policy, optimizer, kept, config, None)
            begun = time.process_time()
            for _ in range(args.updates):
                update(policy, optimizer, kept, config, None)
            print(f"| {packing} | {budget} | {(time.process_time() - begun) / args.updates:.4f} |", flush=True)


if __name__ == "__main__":
    main()
