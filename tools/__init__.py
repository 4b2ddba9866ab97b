"""The commands of the course, one module each: HELP, add_arguments(parser), run(args) -> exit status."""
