"""What Strands can do, one small program for each: killed everywhere, and compared with the run that was not."""
