"""The matrix for Maestro: one value of each parameter per array task."""

from maestrowf.datastructures.core import ParameterGenerator

TOPOLOGIES = ((1, 1), (1, 8), (2, 8), (4, 8))


def get_custom_generator(env, **arguments):
    tasks = [
        (nodes, devices, nodes * devices, precision, repeat)
        for nodes, devices in TOPOLOGIES
        for precision in ("fp32", "fp16")
        for repeat in range(int(arguments["COUNT"]))
    ]
    names = ("NODES", "DEVICES", "RANKS", "PRECISION", "REPEAT")
    generator = ParameterGenerator()
    for name, values in zip(names, zip(*tasks)):
        generator.add_parameter(name, list(values), f"{name}.%%")
    return generator
