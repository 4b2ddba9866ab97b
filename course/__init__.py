"""The course's machinery: what a page teaches, asks, checks, shows and remembers. `helpers` is what a learner keeps."""
