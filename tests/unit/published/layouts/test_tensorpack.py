"""tensorpack's layout: its published tables cell by cell, and what a run gives in it."""

from published_documents import lay_out_published, lay_out_run, make_training, read_pipe_tables
from report_values import write_rows
from support.problems import assert_problem


def test_tables_of_2017_are_as_published():
    # the later ones are a list in the document
    tables = lay_out_published("tensorpack", "tensorpack").tables[:2]
    for table, (header, rows) in zip(tables, read_pipe_tables("tensorpack")):
        # with the script of the other side
        assert table.header == (*header[:2], f"{header[2]} tf_cnn_benchmarks")
        assert [*write_rows(table)] == rows
    titles = [table.title for table in tables]
    assert titles == ["variable-update=replicated", "variable-update=parameter_server"]


def test_list_of_single_results_becomes_tables_of_one_row():
    tables = lay_out_published("tensorpack", "tensorpack").tables
    (table,) = (g for g in tables if "fp16, xla" in g.caption)
    assert write_rows(table) == (("8", "9225"),)


def test_value_that_was_published_twice_is_named():
    notes = lay_out_published("tensorpack", "tensorpack").notes
    note = (
        "tensorpack horovod resnet50-v1 1n8g fp32 bsz=64: there are several values for one cell; "
        "2874.0 is shown, not 2973.0"
    )
    assert note in notes


def test_run_has_a_table_per_way_to_distribute_and_a_column_per_framework():
    document = lay_out_run(
        "tensorpack",
        make_training("1n2g", rate=20.0),
        make_training("1n1g", rate=10.0),
        make_training("1n1g", rate=12.0, framework="jax"),
        make_training("1n2g", rate=18.0, gradient_sync="horovod"),
    )
    native, horovod = document.tables
    assert native.header == ("#GPU", "pytorch", "jax")
    assert write_rows(native) == (("1", "10.00", "12.00"), ("2", "20.00", "-"))
    assert (horovod.title, write_rows(horovod)) == ("variable-update=horovod", (("2", "18.00"),))


def test_failed_case_has_its_word_and_footnote():
    document = lay_out_run("tensorpack", make_training("1n1g"))
    assert write_rows(document.tables[0]) == (("1", "OOM [1]"),)
    assert "out of memory" in document.footnotes[0]


def test_run_without_training_says_so():
    document = lay_out_run("tensorpack", make_training("1n1g", rate=10.0, mode="infer"))
    assert document.tables == []
    (note,) = document.notes
    assert_problem(note, says=("training",))


def test_scripts_of_several_frameworks_are_named_with_them():
    (table,) = lay_out_run(
        "tensorpack",
        make_training("1n1g", rate=10.0),
        make_training("1n1g", rate=11.0, script="pytorch_examples"),
        make_training("1n1g", rate=12.0, framework="jax"),
    ).tables
    assert table.header == ("#GPU", "pytorch (dlperf_slurm)", "pytorch (pytorch_examples)", "jax")


def test_run_over_places_of_data_has_a_value_for_each_as_published():
    (table,) = lay_out_run(
        "tensorpack",
        make_training("1n1g", rate=9.0),
        *(
            make_training(topology, rate=rate, script="tensorpack", data=data)
            for topology, rates in (("1n1g", (12.0, 11.0, 10.0)), ("1n2g", (22.0, 21.0, 20.0)))
            for data, rate in zip(("device", "host", "python-queue"), rates)
        ),
    ).tables
    assert table.title == "variable-update=replicated"
    assert table.header == ("#GPU", "dlperf_slurm", "tensorpack(GPU/CPU/Python)")
    assert write_rows(table) == (
        ("1", "9.00", "12.00/11.00/10.00"),
        ("2", "-", "22.00/21.00/20.00"),
    )


def test_batch_size_that_the_job_chose_is_named():
    found = make_training("1n1g", rate=10.0, found_batch_size=16, batch_size_per_device="max")
    (table,) = lay_out_run("tensorpack", found).tables
    assert table.caption == "ResNet-50, fp32, batch size max: 16; img/s"
    assert write_rows(table) == (("1", "10.00"),)
