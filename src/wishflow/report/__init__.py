"""Reports: one HTML file that shows a fit, a forecast or a backtest, without network."""

from .page import write_report as write_report
