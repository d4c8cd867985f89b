"""A command as a harness that leaves two processes behind, one in a session of its own, and then fails."""

import subprocess
import sys

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(SLEEP)
subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True)"])
raise SystemExit(1)
