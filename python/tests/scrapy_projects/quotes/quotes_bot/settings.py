BOT_NAME = "quotes"
SPIDER_MODULES = ["quotes_bot.spiders"]
ROBOTSTXT_OBEY = True
