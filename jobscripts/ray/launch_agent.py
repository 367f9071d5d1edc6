#!/usr/bin/env python3
"""mpirun calls this instead of ssh: launch_agent.py HOST WORDS... Hands the words to the Ray agent of that
host, through the socket of the agent that runs mpirun, and ends with the exit code from there.
"""
import os
import socket
import sys


def main():
    words = sys.argv[1:]
    # mpirun quotes for the shell of ssh; there is none here.
    command = [words[0], "sh", "-c", "exec " + " ".join(words[1:])]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(os.environ["TRIREME_RAY_AGENTS"])
        for word in command:
            line.sendall(word.encode("unicode_escape") + b"\n")
        line.sendall(b"\n")
        answer = line.makefile().readline()
    sys.exit(int(answer) if answer else 76)


main()
