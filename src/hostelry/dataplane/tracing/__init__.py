"""The last calls of this worker: what each did, when, for `hostelry trace`."""
