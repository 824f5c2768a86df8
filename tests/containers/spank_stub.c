/* The options that container plug-ins add to srun and sbatch: taken, written down, and not followed.
 *
 * plugstack.conf: required FOLDER/spank_stub.so LOG
 * A line "--name=value" is added to LOG for each option that a client command was given (spank(7)).
 */
#include <stdio.h>
#include <slurm/spank.h>

SPANK_PLUGIN(container_options, 1);

static const char *log_path;

/* github.com/NVIDIA/pyxis, github.com/NERSC/shifter, github.com/eth-cscs/slurm-uenv-mount,
 * docs.cscs.ch/software/container-engine */
static struct {
	char *name;
	int has_value;
} options[] = {
	{"container-image", 1},
	{"container-mounts", 1},
	{"container-env", 1},
	{"container-entrypoint", 0},
	{"no-container-entrypoint", 0},
	{"no-container-mount-home", 0},
	{"environment", 1},
	{"uenv", 1},
	{"view", 1},
	{"image", 1},
	{"module", 1},
};
#define OPTIONS ((int) (sizeof options / sizeof *options))

static int write_down(int number, const char *value, int is_remote)
{
	FILE *log;

	if (is_remote || !log_path || !(log = fopen(log_path, "a")))
		return ESPANK_SUCCESS;
	fprintf(log, "--%s%s%s\n", options[number].name, value ? "=" : "", value ? value : "");
	fclose(log);
	return ESPANK_SUCCESS;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	int number;

	log_path = count ? arguments[0] : NULL;
	for (number = 0; number < OPTIONS; number++) {
		struct spank_option option = {
			.name = options[number].name,
			.arginfo = options[number].has_value ? "VALUE" : NULL,
			.usage = "of containers; taken, and not followed",
			.has_arg = options[number].has_value,
			.val = number,
			.cb = write_down,
		};
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
			return ESPANK_ERROR;
	}
	return ESPANK_SUCCESS;
}
