"""What pages draw by themselves: the machine, rings and tiles in motion, and the stepper that moves them."""
