"""One field of a file's data broken, for the tests of readers that name the field."""

import copy

DELETE = "(delete)"  # as the value: the field goes; a text, so that names of tests are the same in each process


def damaged(data, where, value):
    """Return a copy of `data` whose field at `where`, keys from the outside in, is `value`."""
    data = copy.deepcopy(data)
    *parents, last = where
    place = data
    for key in parents:
        place = place[key]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return data
