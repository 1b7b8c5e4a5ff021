"""The table of devices.

Figures are those of the documents named beside them: peaks, which no program reaches. "Dense" is without structured
sparsity; where a document gives the figure with it alone, half is taken and said so. What was not found in a document
is left out, and shown as unknown.
"""

from __future__ import annotations

from edgeformer.cli.sizing.devices import Device

GB = 1_000_000_000
T = 1e12

# What a system keeps of the memory: assumptions of this project, not figures of a vendor; --free-memory takes their
# place. An Orin Nano of 8 GB shows 7620 MiB, of which 1273 were in use with nothing running (a public tegrastats log).
BOARD, CARD, HOST = 3 * GB // 2, 7 * GB // 10, GB

ORIN = ("jetson-orin-jp7.2", "jetson-orin-jp6", "ort-cpu")
THOR = ("jetson-thor-jp7.2", "jetson-thor-jp7.1", "ort-cpu")
OLDER, NEWER = ("tensorrt-10.16", "tensorrt-10.13", "tensorrt-10.3"), ("tensorrt-10.16", "tensorrt-10.13")

NANO = "NVIDIA Jetson Orin Nano Series data sheet DS-11105-001"
SUPER = 'NVIDIA blog "Jetson Orin Nano Developer Kit Gets a Super Boost"'
NX = "NVIDIA Jetson Orin NX Series data sheet DS-10712-001"
AGX = "NVIDIA Jetson AGX Orin Series data sheet DS-10662-001"
THOR_BRIEF = "NVIDIA Jetson Thor technical brief TB-12572-001"
HALF_OF_INT8 = "fp16 as half of int8, as NVIDIA gives both for the Orin Nano"
ADA = "NVIDIA Ada GPU architecture white paper, appendix A"
BLACKWELL = "NVIDIA RTX Blackwell GPU architecture white paper, appendix A"
AMPERE = "NVIDIA Ampere GA102 white paper, appendix A"
FAST = "fp16 with sums in fp16, the faster of the two rates"


def jetson(
    name: str,
    title: str,
    memory: int,
    bandwidth: float,
    fp16: float | None,
    int8: float | None,
    modes: str,
    source: str,
    thor: bool = False,
) -> Device:
    """A Jetson; arithmetic in T operations a second of its GPU alone, bandwidth in GB/s."""
    arithmetic = {kind: value * T for kind, value in (("fp16", fp16), ("int8", int8)) if value is not None}
    targets, capability = (THOR, "11.0") if thor else (ORIN, "8.7")
    return Device(
        name, title, targets, memory * GB, BOARD, bandwidth * GB, arithmetic, source, capability, True, modes
    )  # fmt: skip


def card(
    name: str, title: str, capability: str, memory: int, bandwidth: float, source: str, **arithmetic: float
) -> Device:
    """A GPU with memory of its own; arithmetic in T operations a second, bandwidth in GB/s."""
    rtx = ("tensorrt-rtx",) if capability in ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1") else ()
    older = ("tensorrt-10.16",) if capability == "12.1" else NEWER if capability == "12.0" else OLDER
    targets = ("tensorrt-11", *rtx, *older, "ort-cuda")
    rates = {kind: value * T for kind, value in arithmetic.items()}
    return Device(name, title, targets, memory * GB, CARD, bandwidth * GB, rates, source, capability)


def cpu(name: str, title: str, channels: int, rate: int, memory: int | None = None, source: str = "") -> Device:
    """A CPU by its memory: channels of 64 bits, at `rate` million transfers a second."""
    bandwidth = channels * 8 * rate * 1e6
    said = (
        source or f"arithmetic: {channels} channels of 8 bytes, {rate} million transfers a second (JEDEC's DDR rates)"
    )
    return Device(name, title, ("ort-cpu",), memory, HOST, bandwidth, {}, said)


ROWS = (
    jetson("jetson-orin-nano-4g", "Jetson Orin Nano 4 GB", 4, 34, 5, 10, "7W, 10W",
           f"{NANO}: 34 GB/s, 10 dense INT8 TOPS; {HALF_OF_INT8}"),
    jetson("jetson-orin-nano-8g", "Jetson Orin Nano 8 GB", 8, 68, 10, 20, "7W, 15W; super modes: the next row",
           f"{NANO}: 68 GB/s, 20 dense INT8 TOPS; {SUPER}: 10 FP16 TFLOPs"),
    jetson("jetson-orin-nano-8g-super", "Jetson Orin Nano 8 GB, Super", 8, 102, 17, 33, "15W, 25W, MAXN_SUPER",
           f"{SUPER}: 102 GB/s, 33 dense INT8 TOPS, 17 FP16 TFLOPs"),
    jetson("jetson-orin-nx-8g", "Jetson Orin NX 8 GB", 8, 102, 12.5, 25, "10W, 15W, 20W, MAXN; super modes are faster",
           f"{NX}: 102 GB/s, 70 sparse INT8 TOPS of which its DLA has 20, which leaves 25 dense; {HALF_OF_INT8}"),
    jetson("jetson-orin-nx-16g", "Jetson Orin NX 16 GB", 16, 102, 15, 30,
           "10W, 15W, 25W, MAXN; super modes are faster",
           f"{NX}: 102 GB/s, 100 sparse INT8 TOPS of which two DLAs have 40, so that the GPU has 30 dense; "
           f"{HALF_OF_INT8}"),
    jetson("jetson-agx-orin-32g", "Jetson AGX Orin 32 GB", 32, 204.8, 27, 54, "15W, 30W, 40W, MAXN",
           f"{AGX}: 204.8 GB/s, 108 sparse INT8 TOPS of the GPU, half of it dense; {HALF_OF_INT8}"),
    jetson("jetson-agx-orin-64g", "Jetson AGX Orin 64 GB", 64, 204.8, 42.5, 85, "15W, 30W, 50W, MAXN",
           f"{AGX}: 204.8 GB/s, 170 sparse INT8 TOPS of the GPU, half of it dense; {HALF_OF_INT8}"),
    jetson("jetson-t4000", "Jetson T4000 (Thor)", 64, 273, None, None, "40W to 70W",
           f"{THOR_BRIEF}: 64 GB, 273 GB/s; arithmetic is given for FP4 with sparsity alone (1200 TFLOPS)", thor=True),
    jetson("jetson-t5000", "Jetson T5000 (Thor)", 128, 273, None, None, "40W to 130W",
           f"{THOR_BRIEF}: 128 GB, 273 GB/s; arithmetic is given for FP4 with sparsity alone (2070 TFLOPS)", thor=True),
    card("t4", "NVIDIA T4", "7.5", 16, 300,
         "NVIDIA T4 data sheet: 16 GB, 300 GB/s, 8.1 FP32, 65 FP16 TFLOPS, 130 INT8 TOPS", fp32=8.1, fp16=65, int8=130),
    card("rtx-3060", "GeForce RTX 3060 12 GB", "8.6", 12, 360,
         "NVIDIA's product page: 12 GB, 192 bits; 360 GB/s as data bases of GPUs give it"),
    card("rtx-3090", "GeForce RTX 3090", "8.6", 24, 936,
         f"{AMPERE}: 24 GB, 936 GB/s, 35.6 FP32, 142 FP16 TFLOPS ({FAST}), 284 INT8 TOPS",
         fp32=35.6, fp16=142, int8=284),
    card("rtx-4060", "GeForce RTX 4060", "8.9", 8, 272,
         "NVIDIA's product page: 8 GB, 128 bits; 272 GB/s as data bases of GPUs give it"),
    card("rtx-4070", "GeForce RTX 4070", "8.9", 12, 504,
         "NVIDIA's product page: 12 GB, 192 bits; 504 GB/s as data bases of GPUs give it for GDDR6X"),
    card("rtx-4090", "GeForce RTX 4090", "8.9", 24, 1008,
         f"{ADA}: 24 GB, 1008 GB/s, 82.6 FP32, 330.3 FP16 TFLOPS ({FAST}), 660.6 INT8 TOPS",
         fp32=82.6, fp16=330.3, int8=660.6),
    card("rtx-5090", "GeForce RTX 5090", "12.0", 32, 1792,
         f"{BLACKWELL}: 32 GB, 1792 GB/s, 419 FP16 TFLOPS ({FAST})", fp16=419),
    card("l4", "NVIDIA L4", "8.9", 24, 300,
         "NVIDIA L4 data sheet: 24 GB, 300 GB/s, 30.3 FP32 TFLOPS; with sparsity 242 FP16 and 485 INT8, halved",
         fp32=30.3, fp16=121, int8=242.5),
    card("l40s", "NVIDIA L40S", "8.9", 48, 864,
         "NVIDIA L40S data sheet: 48 GB, 864 GB/s, 91.6 FP32, 362.05 FP16 TFLOPS, 733 INT8 TOPS",
         fp32=91.6, fp16=362.05, int8=733),
    card("a10", "NVIDIA A10", "8.6", 24, 600,
         "NVIDIA A10 data sheet: 24 GB, 600 GB/s, 31.2 FP32, 125 FP16 TFLOPS, 250 INT8 TOPS",
         fp32=31.2, fp16=125, int8=250),
    card("a100-40g", "NVIDIA A100 40 GB", "8.0", 40, 1555,
         "NVIDIA A100 architecture white paper, table 4: 40 GB, 1555 GB/s, 19.5 FP32, 312 FP16 TFLOPS, 624 INT8 TOPS",
         fp32=19.5, fp16=312, int8=624),
    card("a100-80g", "NVIDIA A100 80 GB SXM", "8.0", 80, 2039,
         "NVIDIA A100 data sheet: 80 GB, 2039 GB/s (1935 as a PCIe card), 19.5 FP32, 312 FP16 TFLOPS, 624 INT8 TOPS",
         fp32=19.5, fp16=312, int8=624),
    card("h100", "NVIDIA H100 SXM", "9.0", 80, 3350,
         "NVIDIA H100 data sheet: 80 GB, 3.35 TB/s, 67 FP32 TFLOPS; with sparsity 1979 FP16 and 3958 INT8, halved",
         fp32=67, fp16=989.5, int8=1979),
    card("h200", "NVIDIA H200 SXM", "9.0", 141, 4800,
         "NVIDIA H200 data sheet: 141 GB, 4.8 TB/s, 67 FP32 TFLOPS; with sparsity 1979 FP16 and 3958 INT8, halved",
         fp32=67, fp16=989.5, int8=1979),
    Device("dgx-spark", "NVIDIA DGX Spark (GB10)", ("tensorrt-11", "tensorrt-rtx", "tensorrt-10.16", "ort-cuda"),
           128 * GB, BOARD, 273 * GB, {},
           "NVIDIA DGX Spark user guide, hardware overview: 128 GB, 273 GB/s; arithmetic is given for FP4 with "
           "sparsity alone (1 PFLOP)", "12.1", True),
    Device("raspberry-pi-5-8g", "Raspberry Pi 5, 8 GB", ("ort-cpu",), 8 * GB, HOST, 17 * GB, {},
           "Raspberry Pi's documentation of the BCM2712: 32-bit LPDDR4X, up to 17 GB/s"),
    cpu("cpu-ddr4-2ch", "desktop CPU, two channels of DDR4-3200", 2, 3200),
    cpu("cpu-ddr5-2ch", "desktop CPU, two channels of DDR5-5600", 2, 5600),
    cpu("cpu-ddr5-8ch", "server CPU, eight channels of DDR5-4800", 8, 4800),
    cpu("cpu-ddr5-12ch", "server CPU, twelve channels of DDR5-4800", 12, 4800),
)  # fmt: skip
DEVICES = {device.name: device for device in ROWS}
