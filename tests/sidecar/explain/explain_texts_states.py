"""States, events and health checks, in shapes met late. A pair: the classes of all incidents, the text."""

from __future__ import annotations

from typing import Final

STATES_TEXTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("cgroup_oom",),
        (
            '        "oom-test": {\n'
            '            "state": {\n'
            '                "termination": {\n'
            '                    "exitCode": 137,\n'
            '                    "reason": "OOM Killed",\n'
            '                    "startedAt": "2014-12-18T23:22:25Z",\n'
            '                    "finishedAt": "2014-12-18T23:22:26Z"\n'
            "                }\n"
            "            },"
        ),
    ),
    (
        ("cgroup_oom",),
        (
            "    Last State:  Terminated\n"
            "      Reason:    StartError\n"
            "      Message:   failed to create containerd task: failed to create shim task: OCI runtime create fa"
            "iled: runc create failed: unable to start container process: container init was OOM-killed (memory l"
            "imit too low?): unknown\n"
            "      Exit Code:    128"
        ),
    ),
    (
        ("unknown",),
        (
            "CONTAINER ID   IMAGE     COMMAND   CREATED      STATUS                       PORTS   NAMES\n"
            '0a1b2c3d4e5f   vllm      "vllm"    2 hours ago  Exited (137) 3 minutes ago           llm'
        ),
    ),
    (
        ("cgroup_oom",),
        (
            "{\n"
            '  "status": {\n'
            '    "id": "c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f",\n'
            '    "metadata": {"attempt": 2, "name": "vllm"},\n'
            '    "state": "CONTAINER_EXITED",\n'
            '    "exitCode": 137,\n'
            '    "reason": "OOMKilled",\n'
            '    "finishedAt": "2025-05-08T08:05:05.514785974Z"\n'
            "  }\n"
            "}"
        ),
    ),
    (
        ("cgroup_oom",),
        (
            "{\n"
            '    "tasks": [\n'
            "        {\n"
            '            "lastStatus": "STOPPED",\n'
            '            "stopCode": "EssentialContainerExited",\n'
            '            "stoppedReason": "Essential container in task exited",\n'
            '            "containers": [\n'
            '                {"name": "llm", "lastStatus": "STOPPED", "exitCode": 137, "reason": "OutOfMemoryErro'
            'r: Container killed due to memory usage"}\n'
            "            ]\n"
            "        }\n"
            "    ]\n"
            "}"
        ),
    ),
    (
        ("eviction",),
        (
            '{"tasks":[{"stoppedReason":"Your Spot Task was interrupted.","stopCode":"SpotInterruption","containe'
            'rs":[{"name":"llm","exitCode":143}]}]}'
        ),
    ),
    (
        ("eviction",),
        (
            'E0101 10:00:00.000001 1234 eviction_manager.go:577] "Eviction manager: pod failed to evict" err="tim'
            'ed out"\n'
            'I0101 10:00:00.000002 1234 eviction_manager.go:614] "Eviction manager: pod is evicted successfully" '
            'pod="ai/llm-0"'
        ),
    ),
    (
        ("eviction",),
        (
            "  conditions:\n"
            '  - lastTransitionTime: "2025-01-01T00:00:00Z"\n'
            "    message: 'Taint manager: deleting due to NoExecute taint'\n"
            "    reason: DeletionByTaintManager\n"
            '    status: "True"\n'
            "    type: DisruptionTarget\n"
            "  containerStatuses:\n"
            "  - name: llm\n"
            "    state:\n"
            "      terminated:\n"
            "        exitCode: 137\n"
            "        reason: Error\n"
            '        finishedAt: "2025-01-01T00:00:40Z"'
        ),
    ),
    (
        ("unknown",),
        (
            "Events:\n"
            "  Warning  NodeNotReady  3m  node-controller  Node is not ready\n"
            "Status:       Failed\n"
            "Reason:       NodeLost\n"
            "Message:      Node gpu-3 which was running pod llm-0 is unresponsive"
        ),
    ),
    (
        ("eviction",),
        (
            "status:\n"
            "  message: Pod was terminated in response to imminent node shutdown.\n"
            "  phase: Failed\n"
            "  reason: Terminated"
        ),
    ),
    (
        ("cgroup_oom",),
        (
            "● llm.service - LLM\n"
            "     Loaded: loaded (/etc/systemd/system/llm.service; enabled)\n"
            "     Active: failed (Result: oom-kill) since Mon 2025-01-06 10:00:00 UTC; 3s ago\n"
            "   Duration: 5min 3.2s\n"
            "    Process: 4100 ExecStart=/usr/bin/vllm serve (code=exited, status=0/SUCCESS)\n"
            "   Main PID: 4100 (code=exited, status=0/SUCCESS)"
        ),
    ),
    (
        ("health_check",),
        (
            "Jan 06 10:00:00 h systemd[1]: llm.service: start operation timed out. Terminating.\n"
            "Jan 06 10:01:30 h systemd[1]: llm.service: State 'stop-sigterm' timed out. Killing.\n"
            "Jan 06 10:01:30 h systemd[1]: llm.service: Killing process 4100 (vllm) with signal SIGKILL.\n"
            "Jan 06 10:01:30 h systemd[1]: llm.service: Main process exited, code=killed, status=9/KILL\n"
            "Jan 06 10:01:30 h systemd[1]: llm.service: Failed with result 'timeout'."
        ),
    ),
    (
        ("cgroup_oom",),
        (
            "JobID           State      ExitCode     MaxRSS\n"
            "991          OUT_OF_ME+      0:125\n"
            "991.batch    OUT_OF_ME+      0:125   62914560K"
        ),
    ),
    (
        ("userspace_oom",),
        (
            "slurmstepd: error: Step 991.0 exceeded memory limit (40000000 > 33554432), being killed\n"
            "slurmstepd: error: Exceeded job memory limit\n"
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."
        ),
    ),
    (
        ("deletion",),
        ("slurmstepd: error: *** JOB 991 ON gpu-3 CANCELLED AT 2025-01-06T10:00:00 DUE TO TIME LIMIT ***"),
    ),
    (
        ("unknown",),
        (
            "2025-01-06 10:00:00.200000 +0000 UTC container died c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a59687"
            "78695a4b3c2d1e0f (image=docker.io/vllm/vllm-openai:latest, name=llm, containerExitCode=137)"
        ),
    ),
    (
        ("cgroup_oom",),
        (
            "Jan 06 10:00:00 h conmon[3311]: conmon c3a1f0e2d4b596877869 <ninfo>: OOM event received\n"
            "Jan 06 10:00:00 h conmon[3311]: conmon c3a1f0e2d4b596877869 <ninfo>: OOM received"
        ),
    ),
    (
        ("health_check",),
        (
            "2025-01-06T10:00:00.000000000Z container health_status: unhealthy c3a1f0e2d4b5968778695a4b3c2d1e0ff0"
            "e1d2c3b4a5968778695a4b3c2d1e0f (image=x, name=llm)\n"
            "2025-01-06T10:00:01.000000000Z container kill c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a"
            "4b3c2d1e0f (image=x, name=llm, signal=15)\n"
            "2025-01-06T10:00:11.000000000Z container kill c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a"
            "4b3c2d1e0f (image=x, name=llm, signal=9)\n"
            "2025-01-06T10:00:11.100000000Z container die c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4"
            "b3c2d1e0f (image=x, name=llm, exitCode=137)"
        ),
    ),
    (
        ("userspace_oom",),
        (
            'user: warning: [2026-01-12T20:27:31.913975631Z]: [talos] Sending SIGKILL to cgroup {"component": "co'
            'ntroller-runtime", "controller": "runtime.OOMController", "cgroup": "/sys/fs/cgroup/kubepods/burstab'
            'le/pod77f06c5c-4593-43e9-b970-987f6ecb825b"}'
        ),
    ),
    (
        ("external_kill",),
        (
            '{"status":"kill","id":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f","from":"vll'
            'm","Type":"container","Action":"kill","Actor":{"ID":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968'
            '778695a4b3c2d1e0f","Attributes":{"image":"vllm","name":"llm","signal":"9"}},"scope":"local","time":1'
            '736157600,"timeNano":1736157600000000000}\n'
            '{"status":"die","id":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f","from":"vllm'
            '","Type":"container","Action":"die","Actor":{"ID":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a596877'
            '8695a4b3c2d1e0f","Attributes":{"exitCode":"137","image":"vllm","name":"llm"}},"scope":"local","time"'
            ':1736157600,"timeNano":1736157600000000000}'
        ),
    ),
    (
        ("cgroup_oom",),
        (
            '{"status":"oom","id":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f","from":"vllm'
            '","Type":"container","Action":"oom","Actor":{"ID":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a596877'
            '8695a4b3c2d1e0f","Attributes":{"image":"vllm","name":"llm"}},"scope":"local","time":1736157600,"time'
            'Nano":1736157600000000000}\n'
            '{"status":"die","id":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f","from":"vllm'
            '","Type":"container","Action":"die","Actor":{"ID":"c3a1f0e2d4b5968778695a4b3c2d1e0ff0e1d2c3b4a596877'
            '8695a4b3c2d1e0f","Attributes":{"exitCode":"137","image":"vllm","name":"llm"}},"scope":"local","time"'
            ':1736157600,"timeNano":1736157600000000000}'
        ),
    ),
    (
        ("unknown",),
        ("Container 'llm' was terminated with exit code '137' and reason 'ProcessExited'"),
    ),
    (
        ("cgroup_oom",),
        (
            "The instance could not start successfully. Memory limit of 512 MiB exceeded with 540 MiB used. Consi"
            "der increasing the memory limit, see https://cloud.google.com/run/docs/configuring/memory-limits"
        ),
    ),
    (
        ("health_check",),
        (
            "2018-03-01 10:00:00 +0000 UTC   2018-03-01 10:00:00 +0000 UTC   1   llm-0.15 Pod spec.containers{llm"
            "}  Normal  Killing  kubelet, node1  Killing container with id docker://llm:Container failed liveness"
            " probe.. Container will be killed and recreated."
        ),
    ),
    (
        ("health_check",),
        (
            "uwsgi: *** HARAKIRI ON WORKER 2 (pid: 31, try: 1) ***\n"
            "Mon Jan  6 10:00:00 2025 - HARAKIRI !!! worker 2 status !!!\n"
            "DAMN ! worker 2 (pid: 31) died, killed by signal 9 :( trying respawn ..."
        ),
    ),
    (
        (),
        (
            '{"Status":"unhealthy","FailingStreak":5,"Log":[{"Start":"2025-01-06T10:00:00Z","End":"2025-01-06T10:'
            '00:30Z","ExitCode":-1,"Output":"Health check exceeded timeout (30s)"}]}'
        ),
    ),
    (
        (),
        (
            '            "Health": {\n'
            '                "Status": "unhealthy",\n'
            '                "FailingStreak": 12,\n'
            '                "Log": [\n'
            "                    {\n"
            '                        "Start": "2025-01-06T10:00:00Z",\n'
            '                        "End": "2025-01-06T10:00:01Z",\n'
            '                        "ExitCode": 1,\n'
            '                        "Output": "curl: (7) Failed to connect to localhost port 8000"\n'
            "                    }\n"
            "                ]\n"
            "            }"
        ),
    ),
    (
        ("health_check",),
        (
            "autoheal  | 06-01-2025 10:00:00 Container /llm (0a1b2c3d4e5f) found to be unhealthy - Restarting con"
            "tainer now with 10s timeout"
        ),
    ),
    (
        ("health_check",),
        (
            'msg="healthcheck failed: killing task" alloc_id=aa task=llm reason="check unhealthy"\n'
            '2025-01-06T10:00:00Z  Restart Signaled  healthcheck: check "http" unhealthy\n'
            "2025-01-06T10:00:05Z  Killing  Sent interrupt. Waiting 5s before force killing"
        ),
    ),
    (
        ("eviction",),
        ('Warning  Evicted  5m  kubelet  Container llm exceeded its local ephemeral storage limit "2Gi".'),
    ),
    (
        ("cgroup_oom",),
        ("State.OOMKilled=true ExitCode=137"),
    ),
    (
        ("health_check",),
        (
            'Jan 06 10:00:00 n kubelet[1]: I0106 10:00:00.000001 1 kuberuntime_manager.go:600] Container "llm" ({'
            '"docker" "ab"}) of pod llm-0_ai(1): Container failed liveness probe.. Container will be killed and r'
            "ecreated."
        ),
    ),
    (
        ("cgroup_oom",),
        ('Memory Limit Exceeded: the container "llm" was OOMKilled'),
    ),
    (
        ("unknown",),
        (
            '{"status":{"containerStatuses":[{"name":"llm","restartCount":1,"lastState":{"terminated":{"exitCode"'
            ':255,"reason":"Unknown","finishedAt":"2025-01-06T10:00:00Z"}},"state":{"running":{}}}]}}'
        ),
    ),
    (
        (),
        (
            "2025-01-06T10:00:00Z container exec_die 0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f"
            "0a1b (execID=aa, exitCode=1, image=x)\n"
            "2025-01-06T10:00:00Z container health_status: unhealthy 0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d4e5f0a1b2c3d"
            "4e5f0a1b2c3d4e5f0a1b (image=x)"
        ),
    ),
)
