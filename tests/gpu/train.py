"""A small model, data parallel over NCCL: what run.sh compares is the loss of every step, bit by bit.

Everything but the network is deterministic: seeds, data, algorithms, and NCCL's own order of sums for a given ring. Rank 0 runs R2_FAULT in the
middle, beside the training, and fails if it failed. Usage: train.py FILE; RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torch has them.
"""

import os
import struct
import subprocess
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

STEPS = 120
WIDTH = 1024


def main():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)
    ).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = torch.Generator().manual_seed(100 + rank)
    fault = None
    losses = []
    for step in range(STEPS):
        if rank == 0 and step == STEPS // 3 and os.environ.get("R2_FAULT"):
            fault = subprocess.Popen(os.environ["R2_FAULT"], shell=True, stdout=sys.stderr)
        x = torch.randn(64, WIDTH, generator=data).cuda()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach_())
        losses.append(struct.pack(">f", loss.item()).hex())
    status = fault.wait() if fault else 0
    if rank == 0:
        with open(sys.argv[1], "w") as out:
            out.write("\n".join(losses) + "\n")
    dist.destroy_process_group()
    return status


sys.exit(main())
