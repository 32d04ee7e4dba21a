"""Where tracked runs come from, such as the server of a tracker."""
