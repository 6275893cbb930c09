"""Kernel logs, counters and GPUs, in shapes met late. A pair: the classes of all incidents, the text."""

from __future__ import annotations

from typing import Final

KERNEL_TEXTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        (),
        ("before:\nlow 0\nhigh 0\nmax 10\noom 3\noom_kill 3\nafter:\nlow 0\nhigh 0\nmax 20\noom 3\noom_kill 3"),
    ),
    (
        ("cgroup_oom",),
        (
            'kube_pod_container_status_last_terminated_reason{namespace="ai",pod="llm-0",container="llm",reason="'
            'OOMKilled"} 1\n'
            'kube_pod_container_status_restarts_total{namespace="ai",pod="llm-0",container="llm"} 3'
        ),
    ),
    (
        ("cgroup_oom",),
        ('container_oom_events_total{container="llm",namespace="ai",pod="llm-0"} 2'),
    ),
    (
        ("application_exit",),
        (
            "Memory access fault by GPU node-1 (Agent handle: 0x55d) on address 0x7f0000. Reason: Unknown.\n"
            "Aborted (core dumped)"
        ),
    ),
    (
        ("device_reset",),
        (
            "RuntimeError: CUDA error: unspecified launch failure\n"
            "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
        ),
    ),
    (
        ("device_reset",),
        (
            "[rank3]: RuntimeError: CUDA error: unspecified launch failure\n"
            "kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1200, name=python, GPU has fallen off the bus."
        ),
    ),
    (
        ("device_reset",),
        (
            "[10.1] nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Laye"
            "r\n"
            "[10.2] NVRM: GPU at PCI:0000:3b:00 has fallen off the bus."
        ),
    ),
    (
        ("device_reset",),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance "
            "00"
        ),
    ),
    (
        ("global_oom",),
        (
            "sshd invoked oom-killer: gfp_mask=0x201da, order=0, oom_adj=0\n"
            "Pid: 1012, comm: sshd Not tainted 2.6.32-71.el6.x86_64 #1\n"
            "Call Trace:\n"
            " [<ffffffff810c4941>] ? cpuset_print_task_mems_allowed+0x91/0xb0\n"
            "Mem-Info:\n"
            "Node 0 DMA per-cpu:\n"
            "CPU    0: hi:    0, btch:   1 usd:   0\n"
            "Out of memory: kill process 2210 (java) score 702 or a child\n"
            "Killed process 2210 (java) vsz:9000000kB, anon-rss:6000000kB, file-rss:20kB"
        ),
    ),
    (
        ("global_oom",),
        ("Kernel panic - not syncing: out of memory. Compulsory panic_on_oom is selected."),
    ),
    (
        ("userspace_oom",),
        (
            "Sep 02 10:00:00 a lmkd: Kill 'com.x.llm' (4100), uid 10111, oom_score_adj 905 to free 512000kB rss, "
            "0kB swap; reason: device is low on swap"
        ),
    ),
)
