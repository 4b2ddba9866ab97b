"""What you may copy into a project of your own: each module stands alone, or names the one it needs.

Import from the module that holds what you need, for example `from helpers.devices import pick_device`.
"""
