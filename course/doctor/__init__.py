"""Why is `torch.cuda.is_available()` False? The doctor collects facts, names the cause and gives the one fix.

`gather_facts` looks at the real machine, also while practice GPUs are on; `diagnose` is a pure function of `Facts`, so
any machine can be written down and diagnosed; `doctor` does both and prints a report. Lesson 01 uses all three.
"""

import sys

from course.doctor.diagnosis import Verdict, diagnose, first_line
from course.doctor.facts import Device, Facts, gather_facts

__all__ = ["Device", "Facts", "Verdict", "diagnose", "doctor", "gather_facts", "report", "say"]


def report(facts: Facts, verdict: Verdict) -> str:
    """The doctor's report as text: what is here, what was found, why, and the fix."""
    places = {facts.system: True, facts.host: True, "WSL": facts.wsl, "container": facts.container}
    machine = ", ".join(place for place, true in places.items() if place and true)
    pytorch = f"{facts.torch}, built for {_build(facts)}" if facts.torch else "does not import"
    driver = facts.driver or "no NVIDIA driver"
    lines = [
        f"Machine   {machine}; Python {facts.python}",
        f"PyTorch   {pytorch}",
        f"Driver    {driver}; GPUs: {', '.join(facts.gpus) or 'none listed'}",
    ]
    for device in facts.devices:
        result = first_line(device.error) or "computes correctly"
        lines.append(f"{device.device:<9} {device.name}: {result}")
    lines += [
        f"Verdict   {verdict.summary} [{verdict.code}]",
        f"Why       {verdict.cause}",
        f"Fix       {verdict.fix}",
    ]
    if facts.threads:
        lines.append(f"Threads   {facts.threads}")
    return "\n".join(lines + [f"Unknown   {problem}" for problem in facts.problems])


def _build(facts: Facts) -> str:
    """What PyTorch was built for, in words."""
    kinds = {"CUDA": facts.cuda_build, "ROCm": facts.rocm_build, "XPU": facts.xpu_build}
    builds = [f"{kind} {version}" for kind, version in kinds.items() if version]
    return builds[0] if builds else "MPS" if facts.mps_built else "the CPU only"


def doctor() -> Verdict:
    """Print a short report on this machine's devices and return the `Verdict`; never raises.

    Runs a small computation on each device and checks its result. It takes a few seconds and looks at the real
    machine, whether practice GPUs are on or not.
    """
    facts = gather_facts()
    verdict = diagnose(facts)
    say(report(facts, verdict))
    return verdict


def say(text: str) -> None:
    """Print `text`, also where the output cannot show arrows (a file on Windows)."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    plain = text.replace("→", "->").encode(encoding, "replace").decode(encoding)
    print(text if text == text.encode(encoding, "replace").decode(encoding) else plain)
