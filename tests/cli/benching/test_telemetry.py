"""What each machine tells, and that what it does not tell is said and is no number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgeformer.cli.benching.energy import choose
from edgeformer.cli.benching.telemetry import facts, find_counters, nvml, supported
from edgeformer.cli.benching.telemetry.counters import Counter, CounterError, Missing
from edgeformer.cli.benching.telemetry.sampling import Samples, Series
from edgeformer.cli.benching.telemetry_records import describe

from .machines import AGX_ORIN_JP7, AMD_PC, CONTAINER, INTEL_PC, ORIN_NANO_JP6, THOR_JP7

Plant = Callable[[Mapping[str, str]], Path]


def readings(root: Path) -> dict[str, float]:
    return {counter.name: counter.read() for counter in supported(find_counters(root))}


def missing(root: Path) -> dict[str, str]:
    return {one.name: one.reason for one in find_counters(root) if isinstance(one, Missing)}


def totals(root: Path) -> list[str]:
    return [counter.name for counter in choose(supported(find_counters(root)))]


def test_orin_nano_on_jetpack_6(plant: Plant) -> None:
    root = plant(ORIN_NANO_JP6)
    assert facts(root) == {
        "board": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        "l4t": "36.4.3",
        "jetpack": "6.2+b77",
        "power_mode": "25W (1)",
        "jetson_clocks": "off",
        "memory": "shared by CPU and GPU",
        "cpu_governor": "schedutil",
        "cpu_boost": "not supported",
    }
    assert readings(root) == pytest.approx(
        {
            "rail.VDD_IN": 5.008 * 1.88,
            "rail.VDD_CPU_GPU_CV": 5.008 * 0.64,
            "rail.VDD_SOC": 5.008 * 0.48,
            "cpu.clock": 1344,
            "jetson.gpu_clock": 612,
            "jetson.emc_clock": 3199,
            "jetson.gpu_load": 43.7,
            "jetson.overcurrent.oc1": 0,
            "jetson.overcurrent.oc3": 4,
            "temperature.cpu-thermal": 48.312,
            "temperature.gpu-thermal": 47.968,
            "temperature.tj-thermal": 49,
            "throttling.1.cpu-throttle-alert": 0,
        }
    )
    assert totals(root) == ["rail.VDD_IN"]  # which the others are parts of
    assert set(missing(root)) == {"rapl", "cpu.throttled"}


def test_agx_orin_on_jetpack_7(plant: Plant) -> None:
    root = plant(AGX_ORIN_JP7)
    told = facts(root)
    assert (told["l4t"], told["jetpack"]) == ("39.2.0", "7")
    assert (told["power_mode"], told["jetson_clocks"]) == ("MAXN (0)", "on")
    found = readings(root)
    assert (found["jetson.gpu_clock"], found["jetson.gpu_load"]) == pytest.approx((1300.5, 99))
    # No rail carries the whole board: all of them add up.
    assert totals(root) == ["rail.VDD_GPU_SOC", "rail.VDD_CPU_CV", "rail.VIN_SYS_5V0", "rail.VDDQ_VDD2_1V8AO"]
    assert "emc/rate" in missing(root)["jetson.emc_clock"]
    assert "jetson.emc_clock" not in found


def test_thor_on_jetpack_7(plant: Plant) -> None:
    root = plant(THOR_JP7)
    told = facts(root)
    assert (told["l4t"], told["jetpack"], told["power_mode"]) == ("38.2.1", "7", "120W (1)")
    assert told["jetson_clocks"] == "off"
    found = readings(root)
    assert (found["jetson.gpu_clock"], found["jetson.gpu_clock.gpu-nvd-0"]) == (1575, 1692)
    assert found["rail.VIN"] == pytest.approx(59.8)  # as its monitor says, not volts times amperes
    assert totals(root) == ["rail.VIN"]


def test_an_intel_pc(plant: Plant) -> None:
    root = plant(INTEL_PC)
    assert facts(root) == {"cpu_governor": "powersave", "cpu_boost": "on"}
    found = readings(root)
    assert found["cpu.clock"] == 4100  # an idle core's 800 MHz say nothing
    assert found["cpu.throttled"] == 12
    assert found["throttling.0.Processor"] == 3
    assert found["throttling.1.intel_powerclamp"] == 0  # its -1 is no throttling
    assert found["rapl.package-0.core"] == 5
    assert totals(root) == ["rapl.package-0", "rapl.package-0.dram"]  # cores are inside their package


def test_an_amd_pc(plant: Plant) -> None:
    root = plant(AMD_PC)
    assert facts(root) == {"cpu_governor": "schedutil", "cpu_boost": "off"}
    assert readings(root) == {"cpu.clock": 3600, "rapl.package-0": 1}
    assert set(missing(root)) == {"rail", "cpu.throttled", "temperature", "throttling"}


def test_a_container_tells_nothing_and_has_a_reason_for_each(plant: Plant) -> None:
    root = plant(CONTAINER)
    assert readings(root) == {}
    assert facts(root) == {"cpu_governor": "not supported", "cpu_boost": "not supported"}
    assert set(missing(root)) == {"rapl", "rail", "cpu.clock", "cpu.throttled", "temperature", "throttling"}
    assert all(missing(root).values())


def test_energy_goes_on_where_the_counter_begins_anew(plant: Plant) -> None:
    root = plant(INTEL_PC)
    (package,) = (c for c in supported(find_counters(root)) if c.name == "rapl.package-0")
    before = package.read()
    (root / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("671150\n")  # 1 J after 262143 J
    assert package.read() - before == pytest.approx(1.0)


def test_a_counter_that_may_not_be_read_is_not_supported(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    root, read_text = plant(AMD_PC), Path.read_text

    def refuse(path: Path, *arguments: Any, **options: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "cannot be read by this user" in missing(root)["rapl.package-0"]
    assert totals(root) == []


def test_what_is_not_supported_is_never_a_number_in_a_record(plant: Plant) -> None:
    found = find_counters(plant({**AMD_PC, "sys/class/thermal/thermal_zone0/temp": "broken\n"}))
    series = tuple(Series(counter, (counter.read(), None)) for counter in supported(found))
    told = json.loads(json.dumps(describe(found, Samples((0.0, 0.1), series, 0.1, 0.0))))
    by_name = {counter["name"]: counter for counter in told["counters"]}
    assert by_name["rail"]["values"] == "not supported"
    assert "no number" in by_name["temperature.thermal_zone0"]["reason"]
    assert by_name["cpu.clock"]["values"] == [3600, None]  # a sample that failed is null


class FakeNvmlError(Exception):
    pass


def fake_nvml(**changes: Any) -> Any:
    def not_supported(*arguments: Any) -> Any:
        raise FakeNvmlError("Not Supported")

    values: dict[str, Any] = {
        "NVMLError": FakeNvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetPowerUsage": lambda handle: 71_500,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 123_456_000,
        "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 2619}[kind],
        "nvmlDeviceGetTemperature": lambda handle, sensor: 41,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 1,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=87, memory=40),
        "nvmlDeviceGetMemoryInfo": not_supported,
    }
    return SimpleNamespace(**{**values, **changes})


def test_a_gpu_tells_through_nvml() -> None:
    found = list(nvml.find(fake_nvml()))
    values = {c.name: c.read() for c in found if isinstance(c, Counter)}
    assert values == {
        "gpu0.power": 71.5,
        "gpu0.energy": 123_456,
        "gpu0.clock": 1980,
        "gpu0.memory_clock": 2619,
        "gpu0.temperature": 41,
        "gpu0.throttling": 0,  # the one reason given is that there is nothing to do
        "gpu0.load": 87,
    }
    assert [one for one in found if isinstance(one, Missing)] == [Missing("gpu0.memory", "NVML: Not Supported")]
    assert [c.name for c in choose([c for c in found if isinstance(c, Counter)])] == ["gpu0.energy"]


def test_without_a_driver_or_a_gpu_there_is_a_reason() -> None:
    def fail() -> None:
        raise FakeNvmlError("Driver Not Loaded")

    assert list(nvml.find(fake_nvml(nvmlInit=fail))) == [Missing("gpu", "NVML: Driver Not Loaded")]
    assert list(nvml.find(fake_nvml(nvmlDeviceGetCount=lambda: 0))) == [Missing("gpu", "NVML finds no GPU")]


def test_a_gpu_that_fails_later_is_a_counter_error() -> None:
    readings, library = iter([1000, 0]), fake_nvml()

    def once(handle: int) -> int:
        if not (value := next(readings)):
            raise FakeNvmlError("GPU is lost")
        return value

    library.nvmlDeviceGetPowerUsage = once
    (power,) = (c for c in nvml.find(library) if c.name == "gpu0.power")
    assert isinstance(power, Counter)
    with pytest.raises(CounterError, match="GPU is lost"):
        power.read()
