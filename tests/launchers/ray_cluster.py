#!/usr/bin/env python3
"""A real Ray of two nodes (one GCS, two raylets) on this machine, until standard input closes.

usage: ray_cluster.py FOLDER FILE_FOR_ADDRESS
"""
import pathlib
import sys

from ray.cluster_utils import Cluster

MEMORY = 80_000_000
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "object_store_memory": MEMORY,
                                                        "include_dashboard": False, "temp_dir": sys.argv[1]})
cluster.add_node(num_cpus=2, num_gpus=0, object_store_memory=MEMORY)
cluster.wait_for_nodes(2)
pathlib.Path(sys.argv[2] + ".tmp").write_text(cluster.address)
pathlib.Path(sys.argv[2] + ".tmp").rename(sys.argv[2])
sys.stdin.read()
cluster.shutdown()
