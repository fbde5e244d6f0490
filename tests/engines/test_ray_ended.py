"""SIGTERM ends a command on Ray as it ends others, whatever Ray does with signals."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bayesmf import write
from bayesmf.cli.main import main
from kills.files import differences, digests, held
from kills.processes import survivors
from oracle.variants import small_ratings

ray = pytest.importorskip("ray")

END = "import os, signal\ndef end(): os.kill(os.getpid(), signal.SIGTERM)\n"
MOMENTS = {
    "while Ray begins": """
import ray._private.worker as ours
connect = ours.connect
def end_and_connect(*args, **options):
    end()
    connect(*args, **options)
ours.connect = end_and_connect
""",
    "while Ray is waited for": """
import ray
from bayesmf.engines.ray.crew import Crew
def hire(self):
    def strike(pid):
        import os, signal, time
        os.kill(pid, signal.SIGTERM)
        time.sleep(600)
    self.ray.get(self.ray.remote(strike).remote(os.getpid()))
Crew._hire = hire
""",
    "between two sweeps": """
from bayesmf.inference.checkpoint import Checkpoint
saved, save = [], Checkpoint.save_if_due
def save_and_end(*args):
    save(*args)
    saved.append(1)
    if len(saved) == 7:
        end()
Checkpoint.save_if_due = save_and_end
""",
    "while Ray ends": """
import ray
shutdown = ray.shutdown
def end_and_shut_down():
    end()
    shutdown()
ray.shutdown = end_and_shut_down
""",
}
RUN = "import sys\nfrom bayesmf.__main__ import run\nsys.argv[0] = 'bayesmf'\nrun()\n"


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_ends_a_fit_on_ray_in_order(moment, cluster, tmp_path):
    """With exit code 143, no words, no process and no lock; and the checkpoint goes on."""
    write(small_ratings(60, 40, seed=1), tmp_path / "r.csv")
    words = ["fit", "r.csv", "--rank", "2", "--sweeps", "8", "--burn-in", "2", "--chains", "2",
             "--quiet", "--engine", "ray"]  # fmt: skip
    saving = ["--checkpoint", "run", "--checkpoint-every", "0", "--resume"]
    command = [sys.executable, "-c", END + MOMENTS[moment] + RUN, *words, *saving]
    with subprocess.Popen([*command, "--workers", "2", "--out", "out"], cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:  # fmt: skip
        told = process.communicate()[0]
    assert (process.returncode, told) == (128 + signal.SIGTERM, "")
    assert not survivors(process.pid)
    assert held(tmp_path) == 0
    assert not (tmp_path / "out").exists()
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path)
        for rest in ([*saving, "--out", "out"], ["--out", "whole"]):
            assert CliRunner().invoke(main, [*words, *rest]).exit_code == 0
    assert not differences(digests(tmp_path / "out"), digests(tmp_path / "whole"))
