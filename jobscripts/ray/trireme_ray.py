#!/usr/bin/env python3
"""Trains under Ray: Ray allocates (a placement group and one agent on each node), mpirun launches, through
the agents instead of ssh.

    python trireme_ray.py --nodes 2 --gpus-per-node 8 -- train deck.ini --run.directory=/shared/run
    ray job submit --working-dir jobscripts/ray -- exec python trireme_ray.py --nodes 2 ... -- train ...

tp groups stay inside a node; pp and dp cross nodes in the order of the bundles. A lost node or agent costs
the steps since the last checkpoint: the driver takes a new group and the run resumes. TERM, INT or USR1 to
the driver: save, stop, exit 75. Exit codes are trireme's (doc/exit_codes.md).
The program and the run directory must be at the same path on all nodes. Ray must see the same build there.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

HERE = pathlib.Path(__file__).resolve().parent
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
RESTART = {71, 75, 76}  # and deaths by signal, and mpirun's own failures: see restarts()
NO_RESTART = {64, 65, 66, 70, 74, 78}


def child_environment():
    """Ray's worker environment without what would mislead MPI: variables of an outer SLURM or PMIx, and the
    thread count that Ray sets for Python tasks. CUDA_VISIBLE_DEVICES is the agent's own and stays."""
    drop = ("SLURM_", "PMIX_", "PMI_", "PRTE_", "OMPI_COMM_", "OMPI_UNIVERSE")
    env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    env.pop("OMP_NUM_THREADS", None)
    if "TRIREME_THREADS" in env:
        env["OMP_NUM_THREADS"] = env["TRIREME_THREADS"]
    return env


def start_child(words):
    """A child that ends with this process, however this process ends (keeper.py watches its input)."""
    return subprocess.Popen([sys.executable, str(HERE / "keeper.py"), *words], stdin=subprocess.PIPE, env=child_environment())


class Agent:
    """One on each node: runs mpirun's daemon there; the first one also runs mpirun."""

    def __init__(self, program):
        self.program = shutil.which(program) or program
        self.mpirun = None
        self.peers = {}

    def facts(self):
        path = pathlib.Path(self.program)
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
        return {"ip": ray.util.get_node_ip_address(), "host": socket.gethostname(), "pid": os.getpid(), "build": digest,
                "devices": os.environ.get("CUDA_VISIBLE_DEVICES", "all")}

    def run(self, words):
        """What the launch agent was asked to run here: mpirun's daemon. Returns its exit code."""
        return start_child(words).wait()

    def launch(self, peers, slots, words):
        """mpirun over all peers {host name: agent}; returns its exit code."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="trireme-ray-"))
        self.peers = peers
        server = serve(folder / "agents", lambda host, command: ray.get(peers[host].run.remote(command)))
        (folder / "hosts").write_text("".join(f"{host} slots={slots}\n" for host in peers))
        ranks = slots * len(peers)
        mca = {"plm": "rsh", "plm_rsh_agent": HERE / "launch_agent.py", "plm_rsh_no_tree_spawn": 1}
        command = ["mpirun", "--hostfile", folder / "hosts", "-n", ranks, "--map-by", f"ppr:{slots}:node", "--bind-to", "none",
                   "--leave-session-attached"]
        for name, value in mca.items():
            command += ["--mca", name, value]
        export = {"TRIREME_RANKS": ranks, "TRIREME_NODES": len(peers)}
        for name in sorted(os.environ):
            if name.startswith(("NCCL_", "UCX_")) or name == "LD_LIBRARY_PATH":
                export[name] = os.environ[name]
        for name, value in export.items():
            command += ["-x", f"{name}={value}"]
        os.environ["TRIREME_RAY_AGENTS"] = str(folder / "agents")
        try:
            self.mpirun = start_child([str(w) for w in command] + [self.program, *words])
            return self.mpirun.wait()
        finally:
            server.shutdown()
            shutil.rmtree(folder, ignore_errors=True)

    def stop(self):
        """Save and stop: USR1 to mpirun, which passes it on to every rank."""
        if self.mpirun is not None:
            self.mpirun.send_signal(signal.SIGUSR1)


def serve(path, run):
    """Answers launch_agent.py on a socket of this host: a line for each word, an empty line; then the code."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            words = []
            for line in self.rfile:
                if line == b"\n":
                    break
                words.append(line[:-1].decode("unicode_escape"))
            try:
                code = run(words[0], words[1:])
            except Exception as fault:  # the agent there is lost: mpirun must hear of a failure
                print(f"trireme_ray: {words[0]}: {type(fault).__name__}", file=sys.stderr)
                code = 76
            self.wfile.write(f"{code}\n".encode())

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    server = Server(str(path), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def take_group(options):
    bundle = {"CPU": options.cpus_per_node}
    if options.gpus_per_node:
        bundle["GPU"] = options.gpus_per_node
    group = placement_group([bundle] * options.nodes, strategy="STRICT_SPREAD")
    try:
        ray.get(group.ready(), timeout=options.wait)
    except ray.exceptions.GetTimeoutError:
        remove_placement_group(group)
        have = [{k: v for k, v in n["Resources"].items() if k in bundle} for n in ray.nodes() if n["Alive"]]
        say(f"no {options.nodes} different nodes with {bundle} each became free within {options.wait} s; nodes have {have}")
        return None, bundle
    return group, bundle


def start_agents(options, group, bundle):
    agents = []
    for index in range(options.nodes):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        actor = ray.remote(max_concurrency=8)(Agent)
        agents.append(actor.options(num_cpus=bundle["CPU"], num_gpus=bundle.get("GPU", 0), scheduling_strategy=place,
                                    runtime_env={"env_vars": {"PYTHONPATH": str(HERE)}}).remote(options.program))
    return agents


def host_names(facts):
    """Addresses where they differ; several Ray nodes of one machine get names, which need not resolve."""
    ips = [fact["ip"] for fact in facts]
    return ips if len(set(ips)) == len(ips) else [f"ray-node-{i}" for i in range(len(ips))]


def one_start(options, asked):
    """Takes a group, runs to the end or to a failure; returns the exit code."""
    group, bundle = take_group(options)
    if group is None:
        return 76
    agents = []
    try:
        agents = start_agents(options, group, bundle)
        facts = ray.get([agent.facts.remote() for agent in agents], timeout=options.wait)
        for index, fact in enumerate(facts):
            say(f"agent {index} on {fact['host']} ({fact['ip']}), process {fact['pid']}, devices {fact['devices']}")
        if len({fact["build"] for fact in facts}) != 1 or not facts[0]["build"]:
            say(f"{options.program} is missing or another build on some nodes: "
                + ", ".join(f"{f['host']}: {f['build'][:12] or 'missing'}" for f in facts))
            return 78
        peers = dict(zip(host_names(facts), agents))
        running = agents[0].launch.remote(peers, options.ranks_per_node, options.words)
        while True:
            done, _ = ray.wait([running], timeout=1)
            if done:
                return ray.get(running)
            if asked["stop"] and not asked["passed on"]:
                asked["passed on"] = True
                say("asked to stop: USR1 to the ranks, they save and stop")
                agents[0].stop.remote()
    except ray.exceptions.RayError as fault:
        say(f"an agent is lost: {type(fault).__name__}")
        return 76
    finally:
        for agent in agents:
            ray.kill(agent)
        remove_placement_group(group)


def restarts(code, asked):
    return code != 0 and not asked["stop"] and (code in RESTART or code not in NO_RESTART)


def say(text):
    print(f"trireme_ray: {text}", file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus-per-node", type=int, default=0)
    parser.add_argument("--cpus-per-node", type=int, help="default: one for each rank")
    parser.add_argument("--ranks-per-node", type=int, help="default: the GPUs")
    parser.add_argument("--program", default=os.environ.get("TRIREME", "trireme"))
    parser.add_argument("--wait", type=float, default=600, help="seconds for Ray to find the nodes")
    parser.add_argument("--max-restarts", type=int, default=20)
    parser.add_argument("words", nargs="+", help="-- train DECK [--section.key=value ...]")
    options = parser.parse_args()
    options.ranks_per_node = options.ranks_per_node or options.gpus_per_node or 1
    options.cpus_per_node = options.cpus_per_node or options.ranks_per_node
    return options


def main():
    options = parse()
    asked = {"stop": False, "passed on": False}
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=True)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: asked.update(stop=True))
    for start in range(options.max_restarts + 1):
        code = one_start(options, asked)
        say(f"start {start} ended with {code}")
        if not restarts(code, asked):
            return code
        if start < options.max_restarts:
            pause = min(60, 2 ** min(start, 6))
            say(f"starting again in {pause} s (restart {start + 1} of {options.max_restarts})")
            time.sleep(pause)
    return code


if __name__ == "__main__":
    sys.exit(main())
