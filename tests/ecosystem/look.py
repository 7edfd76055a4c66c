"""Runs programs and prints what they show: python tests/ecosystem/look.py NAME..."""
import sys, traceback, time, faulthandler
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
import os
os.environ.setdefault("JITNEY_CACHE", "0")
import torch
torch.set_num_threads(1)
from harness import Compiler, difference, observe, programs
names = [a for a in sys.argv[1:] if not a.startswith("-")]
which = "torch.compile" if "--torch" in sys.argv else "jitney"
for name, p in programs().items():
    if names and not any(n in name for n in names): continue
    t=time.time()
    try:
        eager = observe(p, Compiler("eager"))
    except Exception:
        print("=====", name, "EAGER FAILS"); traceback.print_exc(limit=-4, file=sys.stdout); continue
    t1=time.time()
    try:
        ours = observe(p, Compiler(which))
    except Exception:
        print("=====", name, "FAILS"); traceback.print_exc(limit=-12, file=sys.stdout); continue
    d = difference(eager.outcome.results, ours.outcome.results, p.tolerance)
    pr = ours.profile
    print("=====", name, "DIFFERS" if d else "equal", f"graphs {pr.graphs} breaks {pr.graph_breaks} recompiles {pr.recompiles} eager {t1-t:.1f}s ours {time.time()-t1:.1f}s")
    if d: print(d[:1500])
    if which != "jitney":
        print(dict(torch._dynamo.utils.counters["graph_break"])); print(torch._dynamo.utils.counters["stats"]); torch._dynamo.reset(); torch._dynamo.utils.counters.clear()
    if "-v" in sys.argv: print(pr.report())
    for w in ours.ours(): print("  WARN", w[:400])
    if "-w" in sys.argv:
        for w in ours.warnings: print("  warn", w[:300])
    if "-s" in sys.argv and ours.outcome.step:
        def timed(s):
            s(); s()
            b=1e9
            for _ in range(10):
                t=time.perf_counter(); s(); b=min(b,time.perf_counter()-t)
            return b*1e3
        print("  step ms eager", timed(eager.outcome.step), "ours", timed(ours.outcome.step))
    sys.stdout.flush()
