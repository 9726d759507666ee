/* SPDX-License-Identifier: MIT */
/*
 * Calls functions that lie far behind the beginning of their object, side by side: sites of
 * test_run_command.py.
 */
int far_falling(int n);
int far_entered(int n);
int far_function(int n);
int far_neighbour(int n);

int main(void)
{
	for (int i = 0; i < 7; i++)
		if (far_function(i) != i + 1 || far_neighbour(i) != i + 2 ||
			far_falling(i) != i + 2 || far_entered(i) != i + 1)
			return 1;
	return 0;
}
