"""Which of these tests there are on which system."""

import sys

# namespaces are Linux's own; elsewhere students' work runs in containers or not at all
collect_ignore = [] if sys.platform == "linux" else ["test_sandbox.py", "test_sandbox_bubblewrap.py"]
