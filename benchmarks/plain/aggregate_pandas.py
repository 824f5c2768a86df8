"""The tables of a run by a plain pandas program, which reads everything and validates nothing."""

import json
import sys
from pathlib import Path

import numpy
import pandas

run = Path(sys.argv[1])
repeats, ranks, steps = [], [], []
for path in sorted(run.glob("cases/*/r*/a*/**/record.json")):
    record = json.loads(path.read_text())
    case = record["case"]
    key = {"case_id": case["case_id"], "repeat": case["repeat"]}
    window = max(rank["window_seconds"] for rank in record["ranks"])
    samples = len(record["ranks"]) * case["axes"]["batch_size_per_device"] * case["measured_steps"]
    repeats.append({**key, "window_seconds": window, "samples_per_s": samples / window})
    ranks.append(pandas.DataFrame(record["ranks"]).assign(**key))
    seconds = numpy.load(path.with_name("details.npz"))["step_seconds"]
    frame = pandas.DataFrame(seconds).stack().reset_index()
    frame.columns = ["rank", "step", "seconds"]
    steps.append(frame.assign(**key))
repeats, ranks, steps = pandas.DataFrame(repeats), pandas.concat(ranks), pandas.concat(steps)
table = repeats.groupby("case_id").samples_per_s.agg(["median", "min", "max", "count"])
by_rank = steps.groupby(["case_id", "repeat", "rank"]).seconds.agg(["median", "max"])
by_case = steps.groupby("case_id").seconds.quantile([0.5, 0.9, 0.99]).unstack()
out = run / "plain"
out.mkdir(exist_ok=True)
print(table.join(by_case).to_markdown() if "--markdown" in sys.argv else table.join(by_case))
table.to_csv(out / "cases.csv")
ranks.merge(by_rank.reset_index()).to_csv(out / "ranks.csv", index=False)
repeats.to_csv(out / "repeats.csv", index=False)
try:
    steps.to_parquet(out / "steps.parquet")
except ImportError:
    import duckdb

    duckdb.sql("from steps").write_parquet(str(out / "steps.parquet"))
