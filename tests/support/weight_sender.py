"""The trainer's end of a weight transfer, in a process of its own: CUDA IPC does not work within one process."""

import asyncio
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")
DEADLINE_S = 100


class Order(NamedTuple):
    """What to send, and over which socket: the tensors of a safetensors file, or one of this many fp32 elements.

    bucket: megabytes of the buffer. shared: through shared memory instead of CUDA IPC.
    """

    handle: str
    bucket: int
    shared: bool
    file: Path | None = None
    elements: int = 0


def pattern(elements: int, device: str):
    """The tensor that an order without a file sends."""
    import torch

    return (torch.arange(elements, dtype=torch.int32, device=device) % 251).float()


def limit_waits() -> None:
    """A transfer whose other end has failed raises zmq.Again instead of waiting forever."""
    import zmq

    for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
        zmq.Context.instance().setsockopt(option, DEADLINE_S * 1000)


def _serve(connection) -> None:
    from safetensors.torch import load_file
    from verl.utils.device import get_device_id, get_device_name
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    limit_waits()
    device = get_device_name() if get_device_name() == "cpu" else f"{get_device_name()}:{get_device_id()}"
    connection.send(None)
    while (order := connection.recv()) is not None:
        try:
            loaded = load_file(order.file, device) if order.file else {"pattern": pattern(order.elements, device)}
            sender = BucketedWeightSender(order.handle, order.bucket, order.shared)
            asyncio.run(sender.async_send_weights(iter(loaded.items())))
            connection.send(None)
        except Exception:
            connection.send(traceback.format_exc())


class WeightSender:
    """Gives orders to that process."""

    def __init__(self, connection):
        self._connection = connection
        self._waiting = 1  # it answers once when it is ready

    def send(self, order: Order, receive: Callable[[], Result]) -> Result:
        """What `receive` returns while an order is sent; AssertionError with what the other end raised."""
        self._wait()
        self._connection.send(order)
        self._waiting += 1
        result = receive()
        self._wait()
        return result

    def _wait(self) -> None:
        while self._waiting:
            assert self._connection.poll(DEADLINE_S), "the sender does not answer"
            self._waiting -= 1
            said = self._connection.recv()
            assert said is None, said


@contextmanager
def weight_sender() -> Iterator[WeightSender]:
    """A sender that starts now and is ready a while later."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield WeightSender(ours)
    finally:
        process.kill()
        process.join()
