#!/usr/bin/env python3
"""Runs a command and ends it when the process that started this one is gone (its end of our standard input
closes, whatever killed it). Passes USR1, USR2, TERM and INT on; ends with the command's exit code.

usage: keeper.py COMMAND...
"""
import os
import signal
import subprocess
import sys
import threading


def main():
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: child.send_signal(received))

    def watch():
        while os.read(0, 4096):
            pass
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    sys.exit(128 - code if code < 0 else code)


main()
