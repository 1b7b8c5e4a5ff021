"""One step of the step graph: prefill in one execution context, decoding in others, each with its captured CUDA graph.

A captured graph belongs to the execution context that it was captured from: changing that context's shapes or addresses
makes the graph's next launch undefined. So each shape that is decoded has a context of its own while its graph lives.
All of them compute in the same memory, one after another.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgeformer.runtime.backends.tensorrt.driver import CapturedGraph, Device
from edgeformer.runtime.backends.tensorrt.engines import DECODE, PREFILL, LoadedEngine, execute
from edgeformer.runtime.backends.tensorrt.stores import Frame
from edgeformer.runtime.errors import DeviceError

MOST_SLOTS = 8  # shapes whose graphs are kept
LOG = logging.getLogger("edgeformer")


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """Equal only where a decoding step's shapes and addresses are the same.

    Attributes:
        owner: number of the workspace whose memory it is.
        swapped: which of two sets of caches is read, where they are not written in place.
        batch: rows.
    """

    owner: int
    swapped: bool
    batch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Shapes of a graph's inputs, and addresses of all its tensors."""

    shapes: Mapping[str, Sequence[int]]
    addresses: Mapping[str, int]


@dataclasses.dataclass(slots=True)
class Slot:
    """A decoding context, bound; `ran` once it has run so, `graph` once that was captured."""

    context: Any
    ran: bool = False
    graph: CapturedGraph | None = None


def bind(context: Any, binding: Binding) -> None:
    """Tell a context the shapes of its inputs and the addresses of all its tensors.

    Raises:
        DeviceError: TensorRT refuses one, which is named.
    """
    for name, shape in binding.shapes.items():
        if not context.set_input_shape(name, tuple(shape)):
            raise DeviceError(f"TensorRT refuses shape {tuple(shape)} for {name}")
    for name, address in binding.addresses.items():
        if not context.set_tensor_address(name, address):
            raise DeviceError(f"TensorRT refuses the address of {name}")


class Stepper:
    """Runs steps on a device's stream; the caller holds the device.

    Attributes:
        capturing: whether decoding steps are captured; off once that has failed.
        notes: what a user may want to know: why capturing is off.
        captures: how many graphs were captured so far.
    """

    def __init__(self, engine: LoadedEngine, device: Device, make_context: Callable[[int], Any]) -> None:
        self.engine, self.device, self.make_context = engine, device, make_context
        self.prefill = make_context(PREFILL)
        self.slots: OrderedDict[tuple[Key, bool], Slot] = OrderedDict()
        self.spares: list[Any] = []  # decoding contexts without a slot
        self.capturing, self.captures = True, 0
        self.notes: list[str] = []

    def step(self, key: Key, binding: Callable[[], Binding], frame: Frame, positions: int, logits: bool) -> None:
        """Run one step to its end.

        Args:
            key: tells a decoding step's binding from others, so that one that is in place need not be made again.
            binding: makes it.
            frame: where its numbers are; what it was given has been written.
            positions: how many positions are wanted, of all rows together.
            logits: whether their logits come to the host, beside the chosen tokens.
        """
        if frame.decodes:
            self.decode(self.slot((key, logits), binding), frame, positions, logits)
        else:
            bind(self.prefill, binding())
            self.queue(self.prefill, frame, positions, logits)
        self.device.synchronize()

    def queue(self, context: Any, frame: Frame, positions: int, logits: bool) -> None:
        frame.given.upload()
        execute(context, self.device.stream, self.engine.logger)
        frame.download(positions, logits)

    def decode(self, slot: Slot, frame: Frame, positions: int, logits: bool) -> None:
        if slot.ran and slot.graph is None and self.capturing and self.capturable(slot.context):
            self.capture(slot, lambda: self.queue(slot.context, frame, positions, logits))
        if slot.graph is not None:
            slot.graph.launch()
        else:
            self.queue(slot.context, frame, positions, logits)
        slot.ran = True

    def slot(self, key: tuple[Key, bool], binding: Callable[[], Binding]) -> Slot:
        """The context that is bound so already, or one bound anew: the one that was not used for the longest time."""
        if (slot := self.slots.get(key)) is not None:
            self.slots.move_to_end(key)
            return slot
        if not self.spares and len(self.slots) >= MOST_SLOTS:
            self.retire(next(iter(self.slots)))
        slot = Slot(self.spares.pop() if self.spares else self.make_context(DECODE))
        bind(slot.context, binding())
        self.slots[key] = slot
        return slot

    def capturable(self, context: Any) -> bool:
        """RTX says so; it depends on how the engine was built."""
        ask = getattr(context, "is_stream_capturable", None)
        if ask is None or ask(int(self.device.stream)):
            return True
        self.stop_capturing("its execution context cannot be captured")
        return False

    def capture(self, slot: Slot, queue: Callable[[], None]) -> None:
        """Capture what `queue` queues; where that fails, decoding goes on without graphs.

        The step ran once in this shape before, and was waited for: TensorRT prepares itself then.
        """
        device, cuda = self.device, self.device.cuda
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        graph = None
        try:
            device.call("cuStreamBeginCapture", device.stream, mode)
            try:
                queue()
            finally:
                graph = device.call("cuStreamEndCapture", device.stream)
            slot.graph = CapturedGraph(device, graph)
            self.captures += 1
        except DeviceError as error:
            self.stop_capturing(str(error))
        finally:
            if graph is not None:
                device.call("cuGraphDestroy", graph)

    def stop_capturing(self, reason: str) -> None:
        self.capturing = False
        self.notes.append(f"decoding goes on without CUDA graphs: {reason}")
        LOG.warning("%s: %s", self.engine.subject, self.notes[-1])

    def retire(self, key: tuple[Key, bool]) -> None:
        """Drop a slot's graph; its context serves another shape."""
        slot = self.slots.pop(key)
        if slot.graph is not None:
            slot.graph.close()
        self.spares.append(slot.context)

    def forget(self, owner: int) -> None:
        """Drop the graphs over memory that is about to be given back."""
        for key in [key for key in self.slots if key[0].owner == owner]:
            self.retire(key)
