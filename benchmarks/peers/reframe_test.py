"""The matrix for ReFrame; repeats are an option of its command."""

import reframe
import reframe.utility.sanity as sanity


@reframe.simple_test
class Train(reframe.RunOnlyRegressionTest):
    topology = parameter([(1, 1), (1, 8), (2, 8), (4, 8)])  # noqa: F821
    precision = parameter(["fp32", "fp16"])  # noqa: F821
    valid_systems = ["*"]
    valid_prog_environs = ["builtin"]
    executable = "./train"
    sourcesdir = None
    time_limit = "10m"

    @run_after("init")  # noqa: F821
    def set_size(self):
        nodes, devices = self.topology
        self.num_tasks = nodes * devices
        self.num_tasks_per_node = devices
        self.executable_opts = [str(nodes), str(devices), self.precision]

    @sanity_function  # noqa: F821
    def has_ended(self):
        return sanity.assert_found("step_ms", self.stdout)
