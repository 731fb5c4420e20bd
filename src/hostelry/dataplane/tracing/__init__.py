"""The last calls of this worker, with their steps and times, for `hostelry trace`."""
