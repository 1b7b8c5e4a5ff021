"""Files of machines, as their kernels and releases lay them out."""

from __future__ import annotations

CORE = "sys/devices/system/cpu/cpu"


def cores(count: int, least: int, most: int, now: int, governor: str) -> dict[str, str]:
    """Clocks of cores, in kHz."""
    values = {"scaling_min_freq": least, "scaling_max_freq": most, "scaling_cur_freq": now}
    files = {f"{CORE}{i}/cpufreq/{name}": f"{value}\n" for i in range(count) for name, value in values.items()}
    return files | {f"{CORE}{i}/cpufreq/scaling_governor": f"{governor}\n" for i in range(count)}


def zones(**temperatures: int) -> dict[str, str]:
    """Thermal zones, in thousandths of a degree."""
    found = {}
    for number, (name, value) in enumerate(temperatures.items()):
        found[f"sys/class/thermal/thermal_zone{number}/type"] = f"{name.replace('_', '-')}\n"
        found[f"sys/class/thermal/thermal_zone{number}/temp"] = f"{value}\n"
    return found


def ina3221(place: str, *rails: tuple[str, int, int]) -> dict[str, str]:
    """Rails of a monitor in hwmon: label, millivolts, milliamperes; and the sum of shunts, which is no rail."""
    found = {f"{place}/name": "ina3221\n", f"{place}/in7_label": "sum of shunt voltages\n", f"{place}/in7_input": "0\n"}
    for channel, (label, volts, amperes) in enumerate(rails, start=1):
        found[f"{place}/in{channel}_label"] = f"{label}\n"
        found[f"{place}/in{channel}_input"] = f"{volts}\n"
        found[f"{place}/in{channel}_enable"] = "1\n"
        found[f"{place}/curr{channel}_input"] = f"{amperes}\n"
    return found


NVPMODEL = """\
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_0 /sys/devices/system/cpu/cpu0/online
< POWER_MODEL ID=0 NAME=15W >
CPU_ONLINE CORE_0 1
< POWER_MODEL ID=1 NAME=25W >
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< PM_CONFIG DEFAULT=1 >
"""

ORIN_NANO_JP6 = {
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0",
    "etc/nv_tegra_release": (
        "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37\n"
    ),
    "var/lib/dpkg/status": (
        "Package: nvidia-l4t-core\nStatus: install ok installed\nVersion: 36.4.3-20250107174145\n\n"
        "Package: nvidia-jetpack\nStatus: install ok installed\nVersion: 6.2+b77\n\n"
    ),
    "etc/nvpmodel.conf": NVPMODEL,
    "var/lib/nvpmodel/status": "pmode:0001\n",
    **cores(6, 729_600, 1_728_000, 1_344_000, "schedutil"),
    "sys/class/devfreq/17000000.gpu/cur_freq": "612000000\n",
    "sys/class/devfreq/17000000.gpu/min_freq": "306000000\n",
    "sys/class/devfreq/17000000.gpu/max_freq": "1020000000\n",
    "sys/devices/platform/17000000.gpu/load": "437\n",
    "sys/kernel/debug/bpmp/debug/clk/emc/rate": "3199000000\n",
    **ina3221(
        "sys/class/hwmon/hwmon1",
        ("VDD_IN", 5008, 1880),
        ("VDD_CPU_GPU_CV", 5008, 640),
        ("VDD_SOC", 5008, 480),
    ),
    "sys/class/hwmon/hwmon2/name": "soctherm_oc\n",
    "sys/class/hwmon/hwmon2/oc1_event_cnt": "0\n",
    "sys/class/hwmon/hwmon2/oc3_event_cnt": "4\n",
    **zones(cpu_thermal=48_312, gpu_thermal=47_968, tj_thermal=49_000),
    "sys/class/thermal/cooling_device0/type": "pwm-fan\n",
    "sys/class/thermal/cooling_device0/cur_state": "2\n",
    "sys/class/thermal/cooling_device1/type": "cpu-throttle-alert\n",
    "sys/class/thermal/cooling_device1/cur_state": "0\n",
}  # fmt: skip

# JetPack's package is not installed here; the clocks are held by jetson_clocks, and the memory's are for root alone.
AGX_ORIN_JP7 = {
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "etc/nv_tegra_release": "# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic, EABI: aarch64, DATE: -\n",
    "etc/nvpmodel.conf": NVPMODEL.replace("15W", "MAXN"),
    "var/lib/nvpmodel/status": "pmode:0000\n",
    **cores(12, 2_201_600, 2_201_600, 2_201_600, "performance"),
    "sys/class/devfreq/17000000.gpu/cur_freq": "1300500000\n",
    "sys/class/devfreq/17000000.gpu/min_freq": "1300500000\n",
    "sys/class/devfreq/17000000.gpu/max_freq": "1300500000\n",
    "sys/devices/gpu.0/load": "990\n",
    **ina3221(
        "sys/class/hwmon/hwmon3",
        ("VDD_GPU_SOC", 19_896, 400),
        ("VDD_CPU_CV", 19_896, 100),
        ("VIN_SYS_5V0", 5000, 1000),
    ),
    **ina3221("sys/class/hwmon/hwmon4", ("VDDQ_VDD2_1V8AO", 5000, 200)),
    **zones(CPU_therm=55_000, GPU_therm=60_500),
}

THOR_JP7 = {
    "proc/device-tree/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
    "etc/nv_tegra_release": "# R38 (release), REVISION: 2.1, GCID: 1, BOARD: generic, EABI: aarch64, DATE: -\n",
    "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=1 NAME=120W >\n",
    "var/lib/nvpmodel/status": "pmode:0001\n",
    **cores(14, 972_000, 2_601_000, 2_601_000, "schedutil"),
    "sys/class/devfreq/gpu-gpc-0/cur_freq": "1575000000\n",
    "sys/class/devfreq/gpu-gpc-0/min_freq": "315000000\n",
    "sys/class/devfreq/gpu-gpc-0/max_freq": "1575000000\n",
    "sys/class/devfreq/gpu-nvd-0/cur_freq": "1692000000\n",
    "sys/class/devfreq/gpu-nvd-0/min_freq": "1692000000\n",
    "sys/class/devfreq/gpu-nvd-0/max_freq": "1692000000\n",
    **ina3221("sys/class/hwmon/hwmon0", ("VDD_GPU", 12_000, 2000), ("VDD_CPU_SOC_MSS", 12_000, 1500)),
    "sys/class/hwmon/hwmon5/name": "ina238\n",
    "sys/class/hwmon/hwmon5/label": "VIN\n",
    "sys/class/hwmon/hwmon5/in1_input": "12000\n",
    "sys/class/hwmon/hwmon5/curr1_input": "5000\n",
    "sys/class/hwmon/hwmon5/power1_input": "59800000\n",
    **zones(cpu_thermal=52_000, gpu_thermal=53_000),
}

INTEL_PC = {
    **cores(8, 800_000, 4_800_000, 4_100_000, "powersave"),
    f"{CORE}0/cpufreq/scaling_cur_freq": "800000\n",
    f"{CORE}0/thermal_throttle/package_throttle_count": "12\n",
    f"{CORE}1/thermal_throttle/package_throttle_count": "12\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
    "sys/class/powercap/intel-rapl:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "262143000000\n",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850\n",
    "sys/class/powercap/intel-rapl:0:0/name": "core\n",
    "sys/class/powercap/intel-rapl:0:0/energy_uj": "5000000\n",
    "sys/class/powercap/intel-rapl:0:0/max_energy_range_uj": "262143328850\n",
    "sys/class/powercap/intel-rapl:0:1/name": "dram\n",
    "sys/class/powercap/intel-rapl:0:1/energy_uj": "7000000\n",
    "sys/class/powercap/intel-rapl:0:1/max_energy_range_uj": "65712999613\n",
    **zones(x86_pkg_temp=61_000, acpitz=27_800),
    "sys/class/thermal/cooling_device0/type": "Processor\n",
    "sys/class/thermal/cooling_device0/cur_state": "3\n",
    "sys/class/thermal/cooling_device1/type": "intel_powerclamp\n",
    "sys/class/thermal/cooling_device1/cur_state": "-1\n",
}

AMD_PC = {
    **cores(4, 400_000, 5_000_000, 3_600_000, "schedutil"),
    "sys/devices/system/cpu/cpufreq/boost": "0\n",
    "sys/class/powercap/intel-rapl:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1000000\n",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "65532610987\n",
    "sys/class/hwmon/hwmon0/name": "k10temp\n",
    "sys/class/hwmon/hwmon0/temp1_input": "45000\n",
}

CONTAINER: dict[str, str] = {}
